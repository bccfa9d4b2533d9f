// Command bench measures Aliquot's scheduler on a cluster of hollow nodes, beside an extender that does nothing; see
// lab/bench.sh, which builds and starts it.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

type options struct {
	kube, program, auditPolicy, config, gogc string
	nodes, pods, rounds, fillPods, waiting   int
	slots, heapMiB, perFilter, warmUp        int
	start, cold                              bool
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func await(patience time.Duration, what string, done func() bool) {
	for end := time.Now().Add(patience); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			check(fmt.Errorf("%s: not so within %s", what, patience))
		}
	}
}

func main() {
	if len(os.Args) > 2 && os.Args[1] == "null" {
		most, err := strconv.Atoi(os.Args[2])
		check(err)
		runNull(nullPort, most, newClient("extender-token"))
	}
	var o options
	var folder string
	flag.StringVar(&o.kube, "kube", "", "the lab's Kubernetes program")
	flag.StringVar(&o.program, "program", "", "the folder of the scheduler's program, unpacked")
	flag.StringVar(&o.auditPolicy, "audit-policy", "", "the API server's audit policy")
	flag.StringVar(&o.config, "config", "", "kube-scheduler's configuration as the chart makes it")
	flag.StringVar(&o.gogc, "gogc", "", "kube-scheduler's GOGC as the chart sets it")
	flag.StringVar(&folder, "folder", "", "for files and logs")
	flag.IntVar(&o.nodes, "nodes", 100, "nodes of 8 GPUs")
	flag.IntVar(&o.pods, "pods", 500, "pods bound and counted in each turn")
	flag.IntVar(&o.rounds, "rounds", 2, "turns, rounds or starts of each kind")
	flag.IntVar(&o.fillPods, "running", 0, "pods that run before anything is measured")
	flag.IntVar(&o.waiting, "waiting", 0, "instead: what so many pods that wait cost those that come and go")
	flag.BoolVar(&o.start, "start", false, "instead: how long the scheduler takes until it is ready, and how much memory")
	flag.BoolVar(&o.cold, "cold", false, "instead: throughput of the first pods after a start")
	flag.IntVar(&o.slots, "slots", 100, "vGPUs a GPU at most")
	flag.IntVar(&o.heapMiB, "heap", 512, "the scheduler's largest heap, in MiB")
	flag.IntVar(&o.perFilter, "nodes-per-filter", 100, "nodes that both extenders answer at most")
	flag.IntVar(&o.warmUp, "warm-up", 500, "pods bound by Aliquot's extender before its first round")
	flag.Parse()

	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() { <-interrupted; os.Exit(130) }()

	// Children die with the thread that started them.
	runtime.LockOSThread()
	c := startCluster(o, folder)
	began := time.Now()
	c.makeNodes()
	fmt.Printf("%d nodes made in %.0f s\n", o.nodes, time.Since(began).Seconds())
	if o.waiting > 0 && o.fillPods < o.nodes*gpusPerNode {
		o.fillPods = o.nodes * gpusPerNode
	}
	if o.fillPods > 0 {
		began = time.Now()
		c.options = o
		c.fill(o.fillPods)
		fmt.Printf("%d running pods made in %.0f s\n", o.fillPods, time.Since(began).Seconds())
	}
	switch {
	case o.start:
		c.measureStart()
	case o.cold:
		c.measureCold()
	case o.waiting > 0:
		c.measureWaiting()
	default:
		c.measureThroughput()
	}
}

// ---- What is measured

// Two kube-schedulers, each with its own extender and its own pods, take short turns: the machine's mood changes within
// minutes, and meets both. Whoever doesn't have the turn stands still.
func (c *cluster) measureThroughput() {
	ours := &contender{name: "aliquot", scheduler: "aliquot-scheduler", port: 10259, extender: c.aliquot()}
	null := &contender{name: "null", scheduler: "null-scheduler", port: 10260, extender: c.nullExtender()}
	for _, each := range []*contender{ours, null} {
		c.warmUp(each)
	}
	for i := 0; i < c.options.rounds; i++ {
		turns := []*contender{ours, null}
		if i%2 == 1 {
			turns = []*contender{null, ours}
		}
		for _, each := range turns {
			each.results = append(each.results, c.turn(each, strconv.Itoa(i)))
		}
	}
	pods := c.options.pods * c.options.rounds
	fmt.Printf("\npods a second, null extender: %.1f; Aliquot: %.1f (medians of %d turns of %d pods, %d nodes, at most %d nodes a Filter)\n",
		median(null.results, rate), median(ours.results, rate), c.options.rounds, c.options.pods, c.options.nodes, c.options.perFilter)
	compareCPU("null extender", null.results, "Aliquot", ours.results)
	writes := 0
	ofPods, others := c.writes(ours.name + "-pod")
	for _, count := range ofPods {
		writes += count
	}
	fmt.Printf("API writes a pod, of kube-scheduler and extender, events aside: %.4f (%d writes, %d pods)\n", float64(writes)/float64(pods), writes, pods)
	fmt.Printf("what else they wrote in all, Leases and events aside: %v\n", others)
	var ratios []float64
	for i, r := range ours.results {
		ratios = append(ratios, r.rate/null.results[i].rate)
	}
	sort.Float64s(ratios)
	ratio, from, to := likely(ratios)
	fmt.Printf("throughput against the null extender: %.3f (median of turns, each against the other's next to it; %.3f to %.3f with a confidence of 95 %%)\n", ratio, from, to)
}

// likely is the middle of sorted values, and between which of them that of all that there might have been lies, with a
// confidence of 95 %: as many are on either side of it as heads are tossed with as many coins.
func likely(sorted []float64) (value, from, to float64) {
	half := float64(len(sorted)) / 2
	reach := 0.98 * math.Sqrt(float64(len(sorted)))
	return middle(sorted), sorted[max(0, int(half-reach)-1)], sorted[min(len(sorted)-1, int(math.Ceil(half+reach)))]
}

func (c *cluster) measureWaiting() {
	var alone, beside []result
	for i := 0; i < c.options.rounds; i++ {
		alone = append(alone, c.round(fmt.Sprintf("alone-%d", i), 0))
		beside = append(beside, c.round(fmt.Sprintf("beside-%d", i), c.options.waiting))
	}
	fmt.Printf("\npods a second that come and go: %.1f; beside %d that wait, with %.0f tries of those a second: %.1f\n",
		median(alone, rate), c.options.waiting, median(beside, func(r result) float64 { return r.tries }), median(beside, rate))
	compareCPU("none waits", alone, "beside", beside)
	fmt.Printf("throughput beside waiting pods against without: %.3f\n", median(beside, rate)/median(alone, rate))
}

// measureCold compares the first pods after a start of Aliquot's extender with as many of the null extender's. Both
// start with a kube-scheduler of their own, in each round anew.
func (c *cluster) measureCold() {
	var ours, null []result
	var ratios []float64
	for i := 0; i < c.options.rounds; i++ {
		null = append(null, c.coldTurn(fmt.Sprintf("null-cold-%d", i), "null-scheduler", 10260, c.nullExtender()))
		ours = append(ours, c.coldTurn(fmt.Sprintf("aliquot-cold-%d", i), "aliquot-scheduler", 10259, c.aliquot()))
		ratios = append(ratios, ours[i].rate/null[i].rate)
	}
	fmt.Printf("\npods a second, the first %d after a start, null extender: %.1f; Aliquot: %.1f (medians of %d starts, %d nodes)\n",
		c.options.pods, median(null, rate), median(ours, rate), c.options.rounds, c.options.nodes)
	compareCPU("null extender", null, "Aliquot", ours)
	sort.Float64s(ratios)
	fmt.Printf("throughput of the first %d pods after a start against the null extender: %.3f (median; %.3f to %.3f)\n",
		c.options.pods, middle(ratios), ratios[0], ratios[len(ratios)-1])
}

// coldTurn starts an extender and a kube-scheduler, and measures from the first pod on that they bind.
func (c *cluster) coldTurn(name, scheduler string, port int, e *extender) result {
	of := &contender{name: name, scheduler: scheduler, port: port, extender: e}
	of.program = c.kubeScheduler(name, scheduler, port, e.address)
	began := time.Now()
	e.begin(name)
	ready := time.Since(began)
	await(time.Minute, "the kube-scheduler's Lease", func() bool {
		var lease struct {
			Spec struct{ HolderIdentity string }
		}
		return c.admin.do("GET", leases+"/"+scheduler, "", nil, &lease) == nil && lease.Spec.HolderIdentity != ""
	})
	watch := c.watchBound()
	r := c.burst(of, watch, name+"-pod", c.options.pods)
	watch.stop()
	fmt.Printf("%s: ready in %.1f s, %.1f pods a second, CPU a pod %.2f ms, of that the extender %.2f ms; it has %d MiB\n",
		name, ready.Seconds(), r.rate, r.cpuAll(), r.cpu["extender"], e.program.resident())
	c.removePods()
	of.program.stop(syscall.SIGKILL)
	e.program.stop(syscall.SIGKILL)
	return r
}

func (c *cluster) measureStart() {
	check(c.admin.do("POST", leases, "application/json", map[string]any{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{"name": "aliquot-scheduler"},
		"spec": map[string]any{"holderIdentity": "another_1", "leaseDurationSeconds": 3600}}, nil))
	var ready []float64
	var p *program
	for i := 0; i < c.options.rounds; i++ {
		began := time.Now()
		e := c.aliquot()
		e.begin(fmt.Sprintf("start-%d", i))
		p = e.program
		ready = append(ready, time.Since(began).Seconds())
		fmt.Printf("ready after %.1f s, resident %d MiB, %.1f s of CPU\n", ready[i], p.resident(), p.cpu().Seconds())
		if i < c.options.rounds-1 {
			p.stop(syscall.SIGKILL)
		}
	}
	time.Sleep(2 * time.Second)
	fmt.Printf("resident 2 s later: %d MiB, with a heap of at most %d MiB\n", p.resident(), c.options.heapMiB)
	sort.Float64s(ready)
	fmt.Printf("ready with %d nodes and %d pods after: %.1f s (median of %d starts; %.1f to %.1f)\n", c.options.nodes, c.options.fillPods,
		middle(ready), len(ready), ready[0], ready[len(ready)-1])
}

type result struct {
	rate  float64
	tries float64            // in vain, a second
	early float64            // of those waiting, a second, before their backoff was over
	cpu   map[string]float64 // of each kind of program, and of this one: ms a pod
}

func rate(r result) float64 { return r.rate }

// compareCPU prints what each kind of program used a pod, in the middle of these rounds and of those.
func compareCPU(this string, these []result, that string, those []result) {
	fmt.Printf("\n%-24s %14s %8s %8s\n", "CPU a pod, ms (medians)", this, that, "more")
	row := func(what string, of func(result) float64) {
		fmt.Printf("%-24s %14.2f %8.2f %8.2f\n", what, median(these, of), median(those, of), median(those, of)-median(these, of))
	}
	for _, kind := range append(kinds, self) {
		row(kind, func(r result) float64 { return r.cpu[kind] })
	}
	row("all but "+self, result.cpuAll)
	fmt.Println()
}

func (r result) cpuAll() (sum float64) {
	for _, kind := range kinds {
		sum += r.cpu[kind]
	}
	return sum
}

func median(results []result, of func(result) float64) float64 {
	var values []float64
	for _, r := range results {
		values = append(values, of(r))
	}
	sort.Float64s(values)
	return middle(values)
}

func middle(sorted []float64) float64 { return (sorted[len(sorted)/2] + sorted[(len(sorted)-1)/2]) / 2 }

// ---- The two extenders

// extender is one that kube-scheduler may ask. Before it is measured it binds so many pods.
type extender struct {
	address string
	warmUp  int
	program *program
	start   func(name string) *program
	answers func() bool
}

func (c *cluster) nullExtender() *extender {
	return &extender{
		address: nullPort,
		warmUp:  min(c.options.warmUp, warmUpWave), // nothing of it is compiled while it runs
		start: func(name string) *program {
			executable, err := os.Executable()
			check(err)
			return c.start("extender-"+name, nil, executable, "null", strconv.Itoa(c.options.perFilter))
		},
		answers: func() bool {
			response, err := http.Post("http://"+nullPort+"/filter", "application/json", strings.NewReader(`{"NodeNames":[]}`))
			if err == nil {
				response.Body.Close()
			}
			return err == nil
		},
	}
}

func (c *cluster) aliquot() *extender {
	return &extender{
		address: "127.0.0.1:9998",
		warmUp:  c.options.warmUp,
		start: func(name string) *program {
			host, err := os.Hostname()
			check(err)
			return c.start("extender-"+name, []string{"KUBECONFIG=" + filepath.Join(c.folder, "extender.kubeconfig"), "POD_NAME=" + host, "POD_NAMESPACE=" + namespace,
				"ALIQUOT_NODES_PER_FILTER=" + strconv.Itoa(c.options.perFilter), "MALLOC_ARENA_MAX=2"},
				// as in its image, in a container of four times the heap
				"chrt", "--batch", "0", "java", "@"+filepath.Join(c.options.program, "java.options"), fmt.Sprintf("-XX:MaxRAM=%dm", 4*c.options.heapMiB),
				"-jar", filepath.Join(c.options.program, "aliquot-scheduler.jar"))
		},
		answers: func() bool {
			response, err := http.Get("http://127.0.0.1:9090/readyz")
			if err != nil {
				return false
			}
			response.Body.Close()
			return response.StatusCode == http.StatusOK
		},
	}
}

// begin starts it, and returns when it answers.
func (e *extender) begin(name string) {
	e.program = e.start(name)
	e.await()
}

func (e *extender) await() {
	await(5*time.Minute, "the extender's answer", func() bool {
		if !e.program.alive() {
			check(fmt.Errorf("the extender has ended; see %s.log", e.program.name))
		}
		return e.answers()
	})
}

// kubeScheduler starts one by this name with the chart's configuration, its extender's address and the length of its
// Lease aside: it may have to stand still for a while.
func (c *cluster) kubeScheduler(name, scheduler string, port int, extender string) *program {
	_ = c.admin.do("DELETE", leases+"/"+scheduler, "application/json", nil, nil)
	text, err := os.ReadFile(c.options.config)
	check(err)
	var out []string
	for _, line := range strings.Split(string(text), "\n") {
		if i := strings.Index(line, "urlPrefix:"); i >= 0 {
			line = line[:i] + "urlPrefix: http://" + extender
		}
		for key, value := range map[string]string{"leaseDuration:": "600s", "renewDeadline:": "500s", "retryPeriod:": "2s", "resourceName:": scheduler, "schedulerName:": scheduler} {
			if i := strings.Index(line, key); i >= 0 {
				line = line[:i] + key + " " + value
			}
		}
		if strings.HasPrefix(line, "clientConnection:") {
			line = "clientConnection: {qps: 1000, burst: 2000, kubeconfig: " + filepath.Join(c.folder, "kube-scheduler.kubeconfig") + "}"
		}
		out = append(out, line)
	}
	name = "kube-scheduler-" + name
	environment := []string{"GOGC=" + c.options.gogc}
	return c.start(name, environment, c.options.kube, "kube-scheduler", "--config="+c.write(name+".yaml", strings.Join(out, "\n")),
		"--secure-port="+strconv.Itoa(port), "--authentication-skip-lookup=true", "--authorization-always-allow-paths=/metrics")
}

// warm lets a kube-scheduler and its extender bind pods until the extender is warm.
func (c *cluster) warm(name, scheduler string, e *extender, watch *bound) {
	for i, left := 0, e.warmUp; left > 0; i++ {
		wave, count := fmt.Sprintf("%s-warm-%d", name, i), min(left, warmUpWave)
		c.create(wave, scheduler, count, podMiB)
		watch.await(wave+"-", count)
		c.removePods()
		left -= count
	}
}

// ---- A turn

// contender is an extender and a kube-scheduler that asks it.
type contender struct {
	name      string
	scheduler string // its schedulerName
	port      int
	extender  *extender
	program   *program
	results   []result
}

// warmUp starts the extender and lets it bind pods, with a kube-scheduler that is replaced by a new one afterwards.
func (c *cluster) warmUp(of *contender) {
	warming := c.kubeScheduler(of.name+"-warming", of.scheduler, of.port, of.extender.address)
	of.extender.begin(of.name)
	watch := c.watchBound()
	c.warm(of.name, of.scheduler, of.extender, watch)
	watch.stop()
	warming.stop(syscall.SIGKILL)
	of.program = c.kubeScheduler(of.name, of.scheduler, of.port, of.extender.address)
	of.pause()
}

// pause lets both stand still. The extender's connections to the API server end, or that would go on writing what an
// extender that watches is to hear, at the cost of the one whose turn it is. A kube-scheduler's don't: both have one.
func (of *contender) pause() {
	of.program.signal(syscall.SIGSTOP)
	of.extender.program.signal(syscall.SIGSTOP)
	of.extender.program.cutOff(apiServerPort)
}

// turn tells how fast pods were bound after others, by which extender and API server have got to know one another again.
func (c *cluster) turn(of *contender, what string) result {
	of.extender.program.signal(syscall.SIGCONT)
	of.program.signal(syscall.SIGCONT)
	time.Sleep(2 * time.Second) // they hear of what they have missed
	of.extender.await()
	watch := c.watchBound()
	c.burst(of, watch, of.name+"-lead-"+what, leadPods)
	name := of.name + "-pod-" + what
	r := c.burst(of, watch, name, c.options.pods)
	watch.stop()
	fmt.Printf("%s: %.1f pods a second, CPU a pod %.2f ms, of that the extender %.2f ms; it has %d MiB, kube-scheduler %d\n",
		name, r.rate, r.cpuAll(), r.cpu["extender"], of.extender.program.resident(), of.program.resident())
	c.removePods()
	of.pause()
	return r
}

// burst lets pods be bound that are all there when it begins.
func (c *cluster) burst(of *contender, watch *bound, name string, pods int) result {
	of.program.signal(syscall.SIGSTOP)
	c.create(name, of.scheduler, pods, podMiB)
	// The API server collects its garbage now, and does so again when it has made as much as it keeps, some 800 pods later:
	// else in the turns of the same extender again and again, a second of CPU each time.
	check(c.admin.do("GET", "/debug/pprof/heap?gc=1", "", nil, nil))
	before := c.cpu()
	of.program.signal(syscall.SIGCONT)
	first, last := watch.await(name+"-", pods)
	return c.result(float64(pods-1)/last.Sub(first).Seconds(), before, pods)
}

// ---- A round of pods that come and go

// round lets a new kube-scheduler bind pods by way of a new extender while others wait.
func (c *cluster) round(name string, waiting int) result {
	e := c.aliquot()
	scheduler := c.kubeScheduler(name, "aliquot-scheduler", 10259, e.address)
	e.begin(name)
	watch := c.watchBound()
	defer watch.stop()
	c.warm(name, "aliquot-scheduler", e, watch)
	if waiting > 0 {
		c.create(name+"-giant", "aliquot-scheduler", waiting, "")
		c.awaitUnschedulable(name+"-giant", waiting)
	}
	r := c.comeAndGo(name, watch)
	fmt.Printf("%s: %.1f pods a second and %.0f tries in vain, %.0f of them early, CPU a pod %.2f ms, of that the extender %.2f ms; it has %d MiB, kube-scheduler %d\n",
		name, r.rate, r.tries, r.early, r.cpuAll(), r.cpu["extender"], e.program.resident(), scheduler.resident())
	scheduler.stop(syscall.SIGKILL)
	c.removePods()
	e.program.stop(syscall.SIGKILL)
	return r
}

// comeAndGo lets pods leave a second after they are bound, and makes as many others, so that kube-scheduler always has
// some to place. They are counted after a while, and for two whole turns of those that wait: these were made together,
// and are tried together once in a turn.
func (c *cluster) comeAndGo(name string, watch *bound) result {
	watch.remove(name + "-pod")
	made := 0
	flow := func(d time.Duration) (int, time.Duration) {
		began, had := time.Now(), watch.left()
		for time.Since(began) < d {
			if made-watch.left() < 400 {
				c.create(fmt.Sprintf("%s-pod-%d", name, made), "aliquot-scheduler", 50, podMiB)
				made += 50
			} else {
				time.Sleep(10 * time.Millisecond)
			}
		}
		return watch.left() - had, time.Since(began)
	}
	turn := c.longestBackoff()
	flow(turn + 15*time.Second)
	before := c.cpu()
	inVainBefore, earlyBefore := c.tries()
	pods, took := flow(2 * turn)
	r := c.result(float64(pods)/took.Seconds(), before, pods)
	inVain, early := c.tries()
	r.tries = (inVain - inVainBefore) / took.Seconds()
	r.early = (early - earlyBefore) / took.Seconds()
	return r
}

func (c *cluster) result(rate float64, before map[string]time.Duration, pods int) result {
	r := result{rate: rate, cpu: map[string]float64{}}
	for kind, used := range c.cpu() {
		r.cpu[kind] = (used - before[kind]).Seconds() * 1000 / float64(pods)
	}
	return r
}

// longestBackoff is kube-scheduler's podMaxBackoffSeconds.
func (c *cluster) longestBackoff() time.Duration {
	config, err := os.ReadFile(c.options.config)
	check(err)
	for _, line := range strings.Split(string(config), "\n") {
		if seconds, ok := strings.CutPrefix(line, "podMaxBackoffSeconds: "); ok {
			n, err := strconv.Atoi(seconds)
			check(err)
			return time.Duration(n) * time.Second
		}
	}
	check(fmt.Errorf("%s: no podMaxBackoffSeconds", c.options.config))
	return 0
}

// tries tells how often kube-scheduler has found no node for a pod since it started, and how often it has tried one again
// whose backoff ran still, since no other was due (KEP-5142).
func (c *cluster) tries() (inVain, early float64) {
	response, err := c.admin.http.Get("https://127.0.0.1:10259/metrics")
	check(err)
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), "} ")
		var sum *float64
		switch {
		case strings.HasPrefix(name, "scheduler_schedule_attempts_total{") && strings.Contains(name, `result="unschedulable"`):
			sum = &inVain
		case strings.HasPrefix(name, "scheduler_queue_incoming_pods_total{") && strings.Contains(name, `event="PopFromBackoffQ"`):
			sum = &early
		default:
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		check(err)
		*sum += n
	}
	return inVain, early
}

// create makes pods of a round for a kube-scheduler of this name; see pod for the memory.
func (c *cluster) create(prefix, scheduler string, count int, memory string) {
	inParallel(count, func(n int) error {
		p := labelled(pod(fmt.Sprintf("%s-%d", prefix, n), memory, nil))
		p["spec"].(map[string]any)["schedulerName"] = scheduler
		return c.admin.do("POST", benchPods, "application/json", p, nil)
	})
}

// removePods removes all but those that run from the beginning.
func (c *cluster) removePods() {
	check(c.admin.do("DELETE", benchPods+"?labelSelector=round&gracePeriodSeconds=0", "application/json", nil, nil))
	await(5*time.Minute, "the round's pods gone", func() bool {
		var list struct{ Items []json.RawMessage }
		check(c.admin.do("GET", benchPods+"?labelSelector=round&limit=1", "application/json", nil, &list))
		return len(list.Items) == 0
	})
}

// labelled is a pod of a round, not one that runs from the beginning.
func labelled(pod map[string]any) map[string]any {
	pod["metadata"].(map[string]any)["labels"] = map[string]string{"round": ""}
	return pod
}

// cpu is what all programs of each kind, and this one, have used.
func (c *cluster) cpu() map[string]time.Duration {
	used := map[string]time.Duration{self: cpu(os.Getpid())}
	for _, p := range c.programs {
		for _, kind := range kinds {
			if strings.HasPrefix(p.name, kind) && p.alive() {
				used[kind] += p.cpu()
			}
		}
	}
	return used
}

// awaitUnschedulable waits until kube-scheduler has said of so many pods that they fit nowhere.
func (c *cluster) awaitUnschedulable(prefix string, count int) {
	await(10*time.Minute, fmt.Sprintf("%d pods that wait", count), func() bool {
		time.Sleep(time.Second)
		pods, _ := c.writes(prefix)
		return pods["kube-scheduler"] >= count
	})
}

// bound tells when pods got their nodes, as a client of the API server sees it.
type bound struct {
	lock    sync.Mutex
	times   map[string]time.Time
	removes string
	gone    atomic.Int64
	stopped atomic.Bool
}

func (c *cluster) watchBound() *bound {
	b := &bound{times: map[string]time.Time{}}
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	check(c.admin.do("GET", benchPods+"?limit=1", "application/json", nil, &list))
	go func() {
		// The API server breaks off a watch whose client is slow, which it is on a busy machine.
		for version := list.Metadata.ResourceVersion; !b.stopped.Load(); {
			version = c.follow(b, version)
		}
	}()
	return b
}

// follow watches from a version on until the API server ends it, and returns the last version that it was told of.
func (c *cluster) follow(b *bound, version string) string {
	response, err := c.admin.send("GET", benchPods+"?watch=1&labelSelector=round&fieldSelector=spec.nodeName!=&resourceVersion="+version, "", nil)
	check(err)
	defer response.Body.Close()
	lines := bufio.NewReaderSize(response.Body, 1<<20)
	for !b.stopped.Load() {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		var event struct {
			Type   string
			Object struct {
				Metadata struct{ Name, ResourceVersion string }
			}
		}
		check(json.Unmarshal(line, &event))
		if event.Type == "ERROR" {
			check(fmt.Errorf("the watch on pods: %s", line))
		}
		version = event.Object.Metadata.ResourceVersion
		if event.Type != "ADDED" {
			continue
		}
		name := event.Object.Metadata.Name
		b.lock.Lock()
		b.times[name] = time.Now()
		remove := b.removes != "" && strings.HasPrefix(name, b.removes)
		b.lock.Unlock()
		if remove {
			b.gone.Add(1)
			time.AfterFunc(time.Second, func() {
				_ = c.admin.do("DELETE", benchPods+"/"+name+"?gracePeriodSeconds=0", "application/json", nil, nil)
			})
		}
	}
	return version
}

// remove lets pods whose names start so leave a second after they got their nodes.
func (b *bound) remove(prefix string) {
	b.lock.Lock()
	b.removes = prefix
	b.lock.Unlock()
}

// left is how many have got their nodes of those that leave.
func (b *bound) left() int { return int(b.gone.Load()) }

func (b *bound) stop() { b.stopped.Store(true) }

// await returns when the first and the last of so many pods got their nodes.
func (b *bound) await(prefix string, count int) (time.Time, time.Time) {
	var first, last time.Time
	had, since := 0, time.Now()
	for {
		n := 0
		b.lock.Lock()
		first, last = time.Time{}, time.Time{}
		for name, at := range b.times {
			if strings.HasPrefix(name, prefix) {
				n++
				if first.IsZero() || at.Before(first) {
					first = at
				}
				if at.After(last) {
					last = at
				}
			}
		}
		b.lock.Unlock()
		if n == count {
			return first, last
		}
		if n > had {
			had, since = n, time.Now()
		}
		if time.Since(since) > 2*time.Minute {
			check(fmt.Errorf("of %d pods %s-… %d are bound, and none since 2 minutes", count, prefix, n))
		}
		time.Sleep(200 * time.Millisecond)
	}
}
