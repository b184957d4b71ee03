package browsertest
import ("testing";"os";"github.com/tidegate/tidegate/internal/fakeapi";"github.com/tidegate/tidegate/breaker";"github.com/tidegate/tidegate/jobs")
func TestFirst(t *testing.T) {
	s := serve(t)
	s.work("shop", fakeapi.Options{}, breaker.Options{})
	for range 5 { s.enqueue(jobs.New("shop", map[string]any{"a":1})) }
	b := s.open("/")
	b.reads("Backlog")
	var png []byte
	for _, p := range []struct{n,p string}{{"overview","/"},{"jobs","/jobs"},{"destinations","/destinations"},{"destination","/destinations/shop"},{"breaker","/breakers/shop"},{"incidents","/incidents"},{"login","/login"},{"missing","/jobs/none"}} {
		b.visit(p.p)
		png = b.picture()
		os.WriteFile("/tmp/w/shots/first-"+p.n+".png", png, 0o644)
	}
	b.quiet()
}
