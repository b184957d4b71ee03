package bench

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

var drainRounds = flag.Int("rounds", 5, "rounds of BenchmarkDrain and BenchmarkLearning")

// retention is how long all contenders keep completed jobs.
const retention = 24 * time.Hour

// drainPlan is how much is done to measure how fast one worker process empties a queue.
type drainPlan struct {
	contenders []drainContender
	rounds     int
	warmup     int           // jobs that are published first and not measured
	jobs       int           // jobs that are measured
	oneWay     time.Duration // that a byte takes from the worker to Redis, and back, beside the machine's own
}

// drainTask is what the process of a contender does.
type drainTask struct {
	Contender   string          `json:"contender"`
	Redis       string          `json:"redis"` // host:port
	Queue       string          `json:"queue"`
	URL         string          `json:"url"`   // of the API; empty: jobs do nothing
	Rate        string          `json:"rate"`  // declared; Tidegate only
	Fleet       int             `json:"fleet"` // calls in flight of the fleet, 0 is no limit; Tidegate only
	Concurrency int             `json:"concurrency"`
	Retention   int             `json:"retention"` // seconds
	Enqueue     int             `json:"enqueue"`   // number of jobs to enqueue instead of publishing; BullMQ only
	Payload     json.RawMessage `json:"payload"`
}

// drainContender is one job queue.
type drainContender struct {
	name      string
	missing   string // why it cannot be measured; empty if it can
	completed string // sorted set of completed jobs
	enqueue   func(testing.TB, redis.UniversalClient, drainTask)
	start     func(testing.TB, drainTask) *process
}

// drainFigures are the figures of one round: jobs a second, and CPU seconds and Redis commands per job.
type drainFigures struct{ rate, worker, redis, enqueue, commands float64 }

// BenchmarkDrain measures how fast one worker process of each contender empties a queue, with
// handlers that do nothing and with HTTP calls. It takes turns, so that all share what the
// machine does beside it. `-bench Drain/HTTP/50 -contenders asynq,Tidegate -rounds 3` measures a part.
func BenchmarkDrain(b *testing.B) {
	p := drainPlan{rounds: *drainRounds, warmup: 2000, jobs: 20_000}
	for name := range strings.SplitSeq(cmp.Or(*onlyOf, "asynq,BullMQ,Tidegate"), ",") {
		switch name {
		case "asynq":
			p.contenders = append(p.contenders, asynqDrain())
		case "BullMQ":
			p.contenders = append(p.contenders, bullmqDrain(b))
		case "Tidegate":
			p.contenders = append(p.contenders, tidegateDrain())
		default:
			b.Fatalf("-contenders: %q is not asynq, BullMQ or Tidegate", name)
		}
	}
	var rows [][]string
	for _, handler := range []string{"nothing", "HTTP"} {
		b.Run(handler, func(b *testing.B) {
			for _, concurrency := range []int{10, 50} {
				b.Run(strconv.Itoa(concurrency), func(b *testing.B) {
					b.ReportMetric(0, "ns/op") // says nothing here
					rows = append(rows, measureDrain(b, p, handler, concurrency)...)
				})
			}
		})
	}
	report(b, "benchmarks.md", "drain", reportDrain(p, rows))
}

// measureDrain returns a row of the table for each contender.
func measureDrain(t testing.TB, p drainPlan, handler string, concurrency int) [][]string {
	task := drainTask{
		Queue: destination, Concurrency: concurrency, Retention: int(retention.Seconds()), Payload: payload(usualPayload),
	}
	if handler == "HTTP" {
		task.URL, _ = startSink(t)
	}
	figures := map[string][]drainFigures{}
	for i := range p.rounds {
		for _, c := range p.contenders {
			if c.missing == "" {
				progress(t, fmt.Sprintf("drain: %s, concurrency %d, round %d, %s", handler, concurrency, i+1, c.name))
				figures[c.name] = append(figures[c.name], drainOnce(t, p, c, task))
			}
		}
	}
	var rows [][]string
	for _, c := range p.contenders {
		rows = append(rows, drainRow(handler, concurrency, c, figures))
	}
	return rows
}

// drainOnce enqueues all jobs, then starts the worker.
func drainOnce(t testing.TB, p drainPlan, c drainContender, task drainTask) (f drainFigures) {
	t.Helper()
	s := &redisServer{Server: redistest.Start(t)}
	defer s.Stop()
	s.rdb = s.Client(t)
	task.Contender, task.Redis = c.name, s.Addr()
	if p.oneWay > 0 {
		task.Redis = redistest.Delayed(t, s.Addr(), p.oneWay)
	}
	all := p.warmup + p.jobs

	idle := s.cpu(t)
	task.Enqueue = all
	c.enqueue(t, s.rdb, task)
	f.enqueue = (s.cpu(t) - idle) / float64(all)

	task.Enqueue = 0
	w := c.start(t, task)
	defer w.stop(t)
	type sample struct {
		at            time.Time
		done          int
		redis, worker float64
	}
	await := func(n int) sample {
		t.Helper()
		for deadline := time.Now().Add(2 * time.Minute); ; pause(t.Context(), 10*time.Millisecond) {
			// More often would be a load of its own.
			now := time.Now()
			if done := int(must(s.rdb.ZCard(t.Context(), c.completed).Result())(t)); done >= n {
				return sample{now, done, s.cpu(t), cpuSeconds(w.cmd.Process.Pid)}
			}
			if now.After(deadline) {
				text, _ := w.log.read()
				t.Fatalf("%s has not published %d jobs in 2 minutes: %s", c.name, n, text)
			}
		}
	}
	begin := await(p.warmup)
	s.ResetStats(t)
	end := await(all)
	n := float64(end.done - begin.done)
	f.commands = float64(commandsOf(t, s.Server)) / n
	f.rate = n / end.at.Sub(begin.at).Seconds()
	f.redis = (end.redis - begin.redis) / n
	f.worker = (end.worker - begin.worker) / n
	return f
}

// cpu returns the CPU seconds that Redis has used.
func (s *redisServer) cpu(t testing.TB) float64 {
	t.Helper()
	return s.info(t, "cpu", "used_cpu_user") + s.info(t, "cpu", "used_cpu_sys")
}

// cpuSeconds reads from /proc/PID/stat what a process has used, 0 where there is none.
func cpuSeconds(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ") // after the name of the program
	fields := strings.Fields(rest)                // the first is the third of the file
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100 // USER_HZ
}

func drainRow(handler string, concurrency int, c drainContender, figures map[string][]drainFigures) []string {
	row := []string{handler, strconv.Itoa(concurrency), c.name}
	own := figures[c.name]
	if c.missing != "" {
		return append(row, "not measured: "+c.missing, "", "", "", "", "")
	}
	rate := func(f drainFigures) float64 { return f.rate }
	slowest := slices.MinFunc(own, func(a, b drainFigures) int { return int(a.rate - b.rate) })
	fastest := slices.MaxFunc(own, func(a, b drainFigures) int { return int(a.rate - b.rate) })
	row = append(row, fmt.Sprintf("%s (%s to %s)", count(median(own, rate)), count(slowest.rate), count(fastest.rate)))
	for _, other := range []string{"asynq", "BullMQ"} {
		var ratios []float64
		for i, f := range figures[other] {
			ratios = append(ratios, own[i].rate/f.rate)
		}
		if len(ratios) == 0 || other == c.name {
			row = append(row, "–")
			continue
		}
		row = append(row, fmt.Sprintf("%.2f", median(ratios, itself)))
	}
	for _, figure := range []func(drainFigures) float64{
		func(f drainFigures) float64 { return f.worker },
		func(f drainFigures) float64 { return f.redis },
		func(f drainFigures) float64 { return f.redis + f.enqueue },
	} {
		row = append(row, fmt.Sprintf("%.0f µs", 1e6*median(own, figure)))
	}
	return row
}

func reportDrain(p drainPlan, rows [][]string) string {
	heading := []string{
		"handler", "concurrency", "", "jobs/s", "of asynq", "of BullMQ", "worker's CPU a job", "Redis's CPU a job", "with its enqueue",
	}
	return fmt.Sprintf("%s jobs after %s that warm up. Rounds, in turns: %d. Medians, with the slowest and the fastest round.\n\n",
		count(float64(p.jobs)), count(float64(p.warmup)), p.rounds) + table(3, append([][]string{heading}, rows...))
}

func asynqDrain() drainContender {
	return drainContender{
		name: "asynq", completed: "asynq:{default}:completed", start: startDrain,
		enqueue: func(t testing.TB, rdb redis.UniversalClient, task drainTask) {
			fillAsynq(t, asynq.NewClientFromRedisClient(rdb), task.Enqueue)
		},
	}
}

func tidegateDrain() drainContender {
	return drainContender{
		name: "Tidegate", completed: store.CompletedKey(store.DefaultNamespace.Queue(destination, store.Default)), start: startDrain,
		enqueue: func(t testing.TB, rdb redis.UniversalClient, task drainTask) {
			for _, r := range must(newClient(t, rdb).EnqueueMany(t.Context(), specs(task.Enqueue, usualPayload)))(t) {
				check(t, r.Err)
			}
		},
	}
}

// bullmqDrain installs BullMQ, as bullmq/package.json says, outside of the repository.
func bullmqDrain(b *testing.B) drainContender {
	c := drainContender{name: "BullMQ", completed: "bull:" + destination + ":completed"}
	node, err := exec.LookPath("node")
	npm, err2 := exec.LookPath("npm")
	if errors.Join(err, err2) != nil {
		c.missing = "no Node"
		return c
	}
	dir := b.TempDir()
	check(b, os.CopyFS(dir, os.DirFS("bullmq")))
	install := exec.CommandContext(b.Context(), npm, "install", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		progress(b, string(out))
		c.missing = "npm install failed"
		return c
	}
	c.start = func(t testing.TB, task drainTask) *process {
		cmd := exec.Command(node, "drain.js", encode(t, task))
		cmd.Dir = dir
		return startCommand(t, cmd)
	}
	c.enqueue = func(t testing.TB, _ redis.UniversalClient, task drainTask) {
		p := c.start(t, task)
		<-p.ended
		p.stop(t)
	}
	return c
}

func startDrain(t testing.TB, task drainTask) *process {
	return startProcess(t, roleDrain, nil, encode(t, task))
}

func encode(t testing.TB, v any) string { return string(must(json.Marshal(v))(t)) }

// drain is the main of a worker of BenchmarkDrain.
func drain(ctx context.Context, text string) error {
	var task drainTask
	if err := json.Unmarshal([]byte(text), &task); err != nil {
		return fmt.Errorf("drain: read the task: %w", err)
	}
	rdb := connect(task.Redis)
	defer func() { _ = rdb.Close() }()
	if task.Contender == "asynq" {
		return drainWithAsynq(ctx, rdb, task)
	}
	return drainWithTidegate(ctx, rdb, task)
}

func drainWithAsynq(ctx context.Context, rdb redis.UniversalClient, task drainTask) error {
	handle := func(context.Context, *asynq.Task) error { return nil }
	if task.URL != "" {
		p := newPoster(task.URL, task.Concurrency)
		defer p.client.CloseIdleConnections()
		handle = func(ctx context.Context, t *asynq.Task) error {
			id, _ := asynq.GetTaskID(ctx)
			return p.post(ctx, id, t.Payload())
		}
	}
	server := asynq.NewServerFromRedisClient(rdb, asynq.Config{Concurrency: task.Concurrency, LogLevel: asynq.FatalLevel})
	if err := server.Start(asynq.HandlerFunc(handle)); err != nil {
		return fmt.Errorf("start asynq: %w", err)
	}
	<-ctx.Done()
	server.Shutdown()
	return nil
}

func drainWithTidegate(ctx context.Context, rdb redis.UniversalClient, task drainTask) (err error) {
	p, err := publisher.New(rdb, publisher.Options{Logger: silent, Retention: retention})
	if err != nil {
		return err
	}
	var handler publisher.Handler = publisher.Func(func(context.Context, *jobs.Job) error { return nil })
	if task.URL != "" {
		h, err := httpdest.New(httpdest.Options{URL: task.URL, Connections: task.Concurrency})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, h.Close()) }()
		handler = h
	}
	options := []publisher.HandleOption{publisher.Concurrency(task.Concurrency)}
	if task.Rate != "" || task.Fleet > 0 {
		limits := breaker.Options{FleetConcurrency: task.Fleet}
		if task.Rate != "" {
			if limits.Rate, err = breaker.ParseRates(task.Rate); err != nil {
				return err
			}
		}
		options = append(options, publisher.Breaker(limits))
	}
	if err := p.Handle(task.Queue, handler, options...); err != nil {
		return err
	}
	return p.Run(ctx)
}

func TestEveryFigureOfTheDrainIsMeasured(t *testing.T) {
	t.Parallel()
	p := drainPlan{contenders: []drainContender{asynqDrain(), tidegateDrain()}, rounds: 1, warmup: 10, jobs: 300}
	url, calls := startSink(t)
	task := drainTask{Queue: destination, URL: url, Concurrency: 3, Payload: payload(usualPayload)}
	for i, c := range p.contenders {
		f := drainOnce(t, p, c, task)
		if f.rate <= 0 || f.redis <= 0 || f.enqueue <= 0 {
			t.Errorf("%s: %+v, want figures above 0", c.name, f)
		}
		if got, want := calls.Load(), int64(i+1)*310; got != want {
			t.Errorf("%d calls after %s, want %d", got, c.name, want)
		}
	}
}

func TestDrainReport(t *testing.T) {
	t.Parallel()
	p := drainPlan{rounds: 3, warmup: 10, jobs: 300, contenders: []drainContender{
		{name: "asynq"}, {name: "BullMQ", missing: "no Node"}, {name: "Tidegate"},
	}}
	figures := map[string][]drainFigures{
		"asynq":    {{1000, 20e-6, 10e-6, 5e-6, 1}, {500, 20e-6, 10e-6, 5e-6, 1}, {2000, 20e-6, 10e-6, 5e-6, 1}},
		"Tidegate": {{3000, 10e-6, 8e-6, 4e-6, 1}, {1000, 10e-6, 8e-6, 4e-6, 1}, {4000, 10e-6, 8e-6, 4e-6, 1}},
	}
	var rows [][]string
	for _, c := range p.contenders {
		rows = append(rows, drainRow("HTTP", 50, c, figures))
	}
	var got []string
	for scan := bufio.NewScanner(strings.NewReader(reportDrain(p, rows))); scan.Scan(); {
		got = append(got, strings.Join(strings.Fields(strings.ReplaceAll(scan.Text(), "|", " ")), " "))
	}
	want := []string{
		"HTTP 50 asynq 1,000 (500 to 2,000) – – 20 µs 10 µs 15 µs",
		"HTTP 50 BullMQ not measured: no Node",
		"HTTP 50 Tidegate 3,000 (1,000 to 4,000) 2.00 – 10 µs 8 µs 12 µs",
	}
	if len(got) < 3 || !slices.Equal(got[len(got)-3:], want) {
		t.Errorf("report:\n%s\nwant at its end:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestCPUOfAProcess(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("no /proc here")
	}
	for start := time.Now(); cpuSeconds(os.Getpid()) == 0; {
		if time.Since(start) > time.Minute {
			t.Fatal("this process has run for a minute and used no CPU")
		}
	}
}
