package sim
import ("testing";"fmt")
func TestZZ(t *testing.T){
 for _, s := range []uint64{6,13,54,92, 1,2,3,4,5,8} { p:=drawPlan(s); r:=play(s,p,nil); fmt.Println(s, p.driftMillionths, p.sidecars, p.modest, r.Tally.figures[jainIndex], p.teams) }
}
