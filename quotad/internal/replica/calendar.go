package replica

import (
	"fmt"
	"time"
	_ "time/tzdata" // zones must mean the same on every node, whatever its image has

	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
)

// PeriodAt returns the budget period of a time zone at a wall clock time: the calendar month there. The zone is an
// IANA name, empty for UTC; an unknown one is an error.
func PeriodAt(timezone string, at time.Time) (*raftlogv1.Period, error) {
	zone, err := time.LoadLocation(timezone)
	if err != nil {
		return nil, fmt.Errorf("time zone %q: %w", timezone, err)
	}
	t := at.In(zone)
	end := time.Date(t.Year(), t.Month()+1, 1, 0, 0, 0, 0, zone)
	return &raftlogv1.Period{
		Timezone: timezone,
		Period:   uint32(t.Year()*100 + int(t.Month())),
		EndsMs:   end.UnixMilli(),
	}, nil
}
