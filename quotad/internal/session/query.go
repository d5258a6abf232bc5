package session

import (
	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/replica"
	"github.com/sluice-gateway/sluice/quotad/internal/rollup"
)

func (*Server) query(m *replica.Machine, q *quotav1.UsageQuery, out *quotav1.UsageResult) {
	rows, err := m.Rollup.Query(rollup.Query{
		Team: q.GetTeam(), FromMS: q.GetFromMs(), ToMS: q.GetToMs(), GroupBy: q.GetGroupBy(),
	})
	if err != nil {
		out.Error = err.Error()
		return
	}
	out.Rows = rowsFrom(rows)
}
