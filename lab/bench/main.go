// Command bench measures Aliquot's scheduler on a cluster of hollow nodes, against a null extender, which only binds.
// lab/bench.sh builds and starts it.
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
	nodes, pods, rounds, running, pending    int
	slots, heapMiB, nodesPerFilter, warmUp   int
	start                                    bool
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func await(timeout time.Duration, what string, done func() bool) {
	for deadline := time.Now().Add(timeout); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			check(fmt.Errorf("timed out after %s: %s", timeout, what))
		}
	}
}

func main() {
	if len(os.Args) > 2 && os.Args[1] == "null" {
		limit, err := strconv.Atoi(os.Args[2])
		check(err)
		runNull(nullPort, limit, newClient("extender-token"))
	}
	var o options
	var folder string
	flag.StringVar(&o.kube, "kube", "", "the folder with etcd and Kubernetes' programs")
	flag.StringVar(&o.program, "program", "", "the folder of the unpacked scheduler program")
	flag.StringVar(&o.auditPolicy, "audit-policy", "", "the API server's audit policy")
	flag.StringVar(&o.config, "config", "", "kube-scheduler's configuration from the chart")
	flag.StringVar(&o.gogc, "gogc", "", "kube-scheduler's GOGC from the chart")
	flag.StringVar(&folder, "folder", "", "the folder of files and logs")
	flag.IntVar(&o.nodes, "nodes", 100, "nodes of 8 GPUs")
	flag.IntVar(&o.pods, "pods", 500, "pods bound and counted in each turn")
	flag.IntVar(&o.rounds, "rounds", 2, "turns, rounds or starts of each kind")
	flag.IntVar(&o.running, "running", 0, "running pods at the start")
	flag.IntVar(&o.pending, "waiting", 0, "instead: measure the throughput of short-lived pods with so many Pending pods")
	flag.BoolVar(&o.start, "start", false, "instead: measure the time until the scheduler is ready, and its memory")
	flag.IntVar(&o.slots, "slots", 100, "vGPUs per GPU at most")
	flag.IntVar(&o.heapMiB, "heap", 512, "the scheduler's largest heap, in MiB")
	flag.IntVar(&o.nodesPerFilter, "nodes-per-filter", 100, "nodes in a Filter response of either extender at most")
	flag.IntVar(&o.warmUp, "warm-up", 500, "pods that Aliquot's extender binds before its first round")
	flag.Parse()

	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() { <-interrupted; os.Exit(130) }()

	// Children die with the thread that started them.
	runtime.LockOSThread()
	c := startCluster(o, folder)
	start := time.Now()
	c.makeNodes()
	fmt.Printf("created %d nodes in %.0f s\n", o.nodes, time.Since(start).Seconds())
	if o.pending > 0 && o.running < o.nodes*gpusPerNode {
		o.running = o.nodes * gpusPerNode
	}
	if o.running > 0 {
		start = time.Now()
		c.options = o
		c.fill(o.running)
		fmt.Printf("created %d running pods in %.0f s\n", o.running, time.Since(start).Seconds())
	}
	switch {
	case o.start:
		c.measureStart()
	case o.pending > 0:
		c.measurePending()
	default:
		c.measureThroughput()
	}
}

// ---- Measurements

// measureThroughput lets two kube-schedulers, each with its own extender and pods, take short turns, since the speed of
// a machine changes within minutes. Programs are stopped while it is not their turn.
func (c *cluster) measureThroughput() {
	aliquot := &contender{name: "aliquot", scheduler: "aliquot-scheduler", port: 10259, extender: c.aliquot()}
	null := &contender{name: "null", scheduler: "null-scheduler", port: 10260, extender: c.nullExtender()}
	for _, contender := range []*contender{aliquot, null} {
		c.warmUp(contender)
	}
	for i := 0; i < c.options.rounds; i++ {
		turns := []*contender{aliquot, null}
		if i%2 == 1 {
			turns = []*contender{null, aliquot}
		}
		for _, contender := range turns {
			contender.results = append(contender.results, c.turn(contender, strconv.Itoa(i)))
		}
	}
	pods := c.options.pods * c.options.rounds
	fmt.Printf("\npods per second, null extender: %.1f; Aliquot: %.1f (medians of %d turns of %d pods, %d nodes, at most %d nodes per Filter)\n",
		median(null.results, rate), median(aliquot.results, rate), c.options.rounds, c.options.pods, c.options.nodes, c.options.nodesPerFilter)
	compareCPU("null extender", null.results, "Aliquot", aliquot.results)
	writes := 0
	ofPods, others := c.writes(aliquot.name + "-pod")
	for _, count := range ofPods {
		writes += count
	}
	fmt.Printf("API writes per pod by kube-scheduler and extender, without events: %.4f (%d writes, %d pods)\n", float64(writes)/float64(pods), writes, pods)
	fmt.Printf("their other writes, without Leases and events: %v\n", others)
	var ratios []float64
	for i, r := range aliquot.results {
		ratios = append(ratios, r.rate/null.results[i].rate)
	}
	sort.Float64s(ratios)
	ratio, low, high := medianInterval(ratios)
	fmt.Printf("throughput against the null extender: %.3f (median of the ratios of adjacent turns; 95 %% confidence interval %.3f to %.3f)\n", ratio, low, high)
}

// medianInterval returns the median of sorted values and its 95 % confidence interval. The number of values below the
// true median has a binomial distribution with p = 1/2, approximated by a normal one.
func medianInterval(sorted []float64) (median, low, high float64) {
	half := float64(len(sorted)) / 2
	reach := 0.98 * math.Sqrt(float64(len(sorted)))
	return middle(sorted), sorted[max(0, int(half-reach)-1)], sorted[min(len(sorted)-1, int(math.Ceil(half+reach)))]
}

func (c *cluster) measurePending() {
	var without, with []result
	for i := 0; i < c.options.rounds; i++ {
		without = append(without, c.round(fmt.Sprintf("without-%d", i), 0))
		with = append(with, c.round(fmt.Sprintf("with-%d", i), c.options.pending))
	}
	fmt.Printf("\nshort-lived pods per second without Pending pods: %.1f; with %d, of which %.0f are retried per second: %.1f\n",
		median(without, rate), c.options.pending, median(with, func(r result) float64 { return r.retries }), median(with, rate))
	compareCPU("none Pending", without, "Pending", with)
	fmt.Printf("throughput with Pending pods against without: %.3f\n", median(with, rate)/median(without, rate))
}

func (c *cluster) measureStart() {
	check(c.admin.do("POST", leases, "application/json", map[string]any{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{"name": "aliquot-scheduler"},
		"spec": map[string]any{"holderIdentity": "another_1", "leaseDurationSeconds": 3600}}, nil))
	var ready []float64
	var p *program
	for i := 0; i < c.options.rounds; i++ {
		start := time.Now()
		e := c.aliquot()
		e.begin(fmt.Sprintf("start-%d", i))
		p = e.program
		ready = append(ready, time.Since(start).Seconds())
		fmt.Printf("ready after %.1f s, resident %d MiB, %.1f s of CPU\n", ready[i], p.resident(), p.cpu().Seconds())
		if i < c.options.rounds-1 {
			p.stop(syscall.SIGKILL)
		}
	}
	time.Sleep(30 * time.Second)
	fmt.Printf("resident 30 s later: %d MiB, with a heap of at most %d MiB; %.1f s of CPU\n", p.resident(), c.options.heapMiB, p.cpu().Seconds())
	sort.Float64s(ready)
	fmt.Printf("time until ready with %d nodes and %d pods: %.1f s (median of %d starts; %.1f to %.1f)\n", c.options.nodes, c.options.running,
		middle(ready), len(ready), ready[0], ready[len(ready)-1])
}

type result struct {
	rate    float64            // pods bound per second
	retries float64            // failed attempts per second
	early   float64            // retries per second before the end of a pod's backoff
	cpu     map[string]float64 // ms per pod, of each kind of program and of this one
}

func rate(r result) float64 { return r.rate }

// compareCPU prints the median CPU time per pod of each kind of program in two lists of results.
func compareCPU(baseName string, base []result, otherName string, others []result) {
	fmt.Printf("\n%-24s %14s %8s %8s\n", "CPU per pod, ms (median)", baseName, otherName, "more")
	row := func(what string, of func(result) float64) {
		fmt.Printf("%-24s %14.2f %8.2f %8.2f\n", what, median(base, of), median(others, of), median(others, of)-median(base, of))
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

// extender is a scheduler extender, either Aliquot's or the null extender.
type extender struct {
	address string
	warmUp  int // pods that it binds before it is measured
	program *program
	start   func(name string) *program
	ready   func() bool
}

func (c *cluster) nullExtender() *extender {
	return &extender{
		address: nullPort,
		warmUp:  min(c.options.warmUp, warmUpWave), // it has no JIT compiler to warm up
		start: func(name string) *program {
			executable, err := os.Executable()
			check(err)
			return c.start("extender-"+name, nil, executable, "null", strconv.Itoa(c.options.nodesPerFilter))
		},
		ready: func() bool {
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
			p := c.start("extender-"+name, []string{"KUBECONFIG=" + filepath.Join(c.folder, "extender.kubeconfig"), "POD_NAME=" + host, "POD_NAMESPACE=" + namespace,
				"ALIQUOT_NODES_PER_FILTER=" + strconv.Itoa(c.options.nodesPerFilter), "MALLOC_ARENA_MAX=2"},
				// as in its image, in a container with a memory limit of four times the heap
				"chrt", "--batch", "0", "java", "@"+filepath.Join(c.options.program, "java.options"), fmt.Sprintf("-XX:MaxRAM=%dm", 4*c.options.heapMiB),
				"-jar", filepath.Join(c.options.program, "aliquot-scheduler.jar"))
			c.trustExtender()
			return p
		},
		ready: func() bool {
			response, err := http.Get("http://127.0.0.1:9090/readyz")
			if err != nil {
				return false
			}
			response.Body.Close()
			return response.StatusCode == http.StatusOK
		},
	}
}

// begin starts the extender and returns when it is ready.
func (e *extender) begin(name string) {
	e.program = e.start(name)
	e.await()
}

func (e *extender) await() {
	await(5*time.Minute, "the extender is ready", func() bool {
		if !e.program.alive() {
			check(fmt.Errorf("the extender has exited; see %s.log", e.program.name))
		}
		return e.ready()
	})
}

// kubeScheduler starts a kube-scheduler with the chart's configuration, except for the extender's address and a longer
// Lease, since it is stopped for a while between its turns.
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
	return c.start(name, environment, filepath.Join(c.options.kube, "kube-scheduler"), "--config="+c.write(name+".yaml", strings.Join(out, "\n")),
		"--secure-port="+strconv.Itoa(port), "--authentication-skip-lookup=true", "--authorization-always-allow-paths=/metrics")
}

// bindWarmUpPods lets a kube-scheduler bind pods until its extender is warm.
func (c *cluster) bindWarmUpPods(name, scheduler string, e *extender, watch *bindingWatch) {
	for i, remaining := 0, e.warmUp; remaining > 0; i++ {
		wave, count := fmt.Sprintf("%s-warm-%d", name, i), min(remaining, warmUpWave)
		c.create(wave, scheduler, count, podMiB)
		watch.await(wave+"-", count)
		c.removePods()
		remaining -= count
	}
}

// ---- A turn

// contender is an extender and the kube-scheduler that calls it.
type contender struct {
	name      string
	scheduler string // its schedulerName
	port      int
	extender  *extender
	program   *program
	results   []result
}

// warmUp starts the extender and lets it bind pods with one kube-scheduler, then starts a new kube-scheduler.
func (c *cluster) warmUp(of *contender) {
	warming := c.kubeScheduler(of.name+"-warming", of.scheduler, of.port, of.extender.address)
	of.extender.begin(of.name)
	watch := c.watchBindings()
	c.bindWarmUpPods(of.name, of.scheduler, of.extender, watch)
	watch.stop()
	warming.stop(syscall.SIGKILL)
	of.program = c.kubeScheduler(of.name, of.scheduler, of.port, of.extender.address)
	of.pause()
}

// pause stops both programs. It closes the extender's connections to the API server, which would otherwise send watch
// events at the cost of the other contender's turn. The kube-schedulers' connections stay open: both have them.
func (of *contender) pause() {
	of.program.signal(syscall.SIGSTOP)
	of.extender.program.signal(syscall.SIGSTOP)
	of.extender.program.closeConnections(apiServerPort)
}

// turn measures how fast pods are bound, after others that let the extender's watches and connections recover.
func (c *cluster) turn(of *contender, what string) result {
	of.extender.program.signal(syscall.SIGCONT)
	of.program.signal(syscall.SIGCONT)
	time.Sleep(2 * time.Second) // until they have received the watch events that they missed
	of.extender.await()
	watch := c.watchBindings()
	c.burst(of, watch, of.name+"-lead-"+what, leadPods)
	name := of.name + "-pod-" + what
	r := c.burst(of, watch, name, c.options.pods)
	watch.stop()
	fmt.Printf("%s: %.1f pods per second, CPU per pod %.2f ms (extender %.2f ms), memory of the extender %d MiB, of kube-scheduler %d MiB\n",
		name, r.rate, r.cpuAll(), r.cpu["extender"], of.extender.program.resident(), of.program.resident())
	c.removePods()
	of.pause()
	return r
}

// burst measures the binding of pods that all exist when it starts.
func (c *cluster) burst(of *contender, watch *bindingWatch, name string, pods int) result {
	of.program.signal(syscall.SIGSTOP)
	c.create(name, of.scheduler, pods, podMiB)
	// Collects the API server's garbage. The next collection, a second of CPU, comes some 800 pods later. Without this one
	// collections can fall into the turns of the same extender each time.
	check(c.admin.do("GET", "/debug/pprof/heap?gc=1", "", nil, nil))
	before := c.cpu()
	of.program.signal(syscall.SIGCONT)
	first, last := watch.await(name+"-", pods)
	return c.result(float64(pods-1)/last.Sub(first).Seconds(), before, pods)
}

// ---- A round of short-lived pods

// round measures a new kube-scheduler and a new extender with so many Pending pods.
func (c *cluster) round(name string, pending int) result {
	e := c.aliquot()
	scheduler := c.kubeScheduler(name, "aliquot-scheduler", 10259, e.address)
	e.begin(name)
	watch := c.watchBindings()
	defer watch.stop()
	c.bindWarmUpPods(name, "aliquot-scheduler", e, watch)
	if pending > 0 {
		c.create(name+"-giant", "aliquot-scheduler", pending, "")
		c.awaitUnschedulable(name+"-giant", pending)
	}
	r := c.churn(name, watch)
	fmt.Printf("%s: %.1f pods and %.0f retries per second, %.0f of them early, CPU per pod %.2f ms (extender %.2f ms), memory of the extender %d MiB, of kube-scheduler %d MiB\n",
		name, r.rate, r.retries, r.early, r.cpuAll(), r.cpu["extender"], e.program.resident(), scheduler.resident())
	scheduler.stop(syscall.SIGKILL)
	c.removePods()
	e.program.stop(syscall.SIGKILL)
	return r
}

// churn deletes pods a second after they are bound and creates as many new ones, so that kube-scheduler always has pods
// to place. It counts them for two backoff periods of the Pending pods, which were created together and so are retried
// together once in a period.
func (c *cluster) churn(name string, watch *bindingWatch) result {
	watch.deleteWhenBound(name + "-pod")
	created := 0
	flow := func(d time.Duration) (int, time.Duration) {
		start, before := time.Now(), watch.deletedPods()
		for time.Since(start) < d {
			if created-watch.deletedPods() < 400 {
				c.create(fmt.Sprintf("%s-pod-%d", name, created), "aliquot-scheduler", 50, podMiB)
				created += 50
			} else {
				time.Sleep(10 * time.Millisecond)
			}
		}
		return watch.deletedPods() - before, time.Since(start)
	}
	period := c.longestBackoff()
	flow(period + 15*time.Second)
	before := c.cpu()
	retriesBefore, earlyBefore := c.retries()
	pods, took := flow(2 * period)
	r := c.result(float64(pods)/took.Seconds(), before, pods)
	retries, early := c.retries()
	r.retries = (retries - retriesBefore) / took.Seconds()
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

// longestBackoff returns kube-scheduler's podMaxBackoffSeconds.
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

// retries returns how many attempts of kube-scheduler have found no node since its start, and how many pods it has
// retried before the end of their backoff, since its active queue was empty (KEP-5142).
func (c *cluster) retries() (failed, early float64) {
	response, err := c.admin.http.Get("https://127.0.0.1:10259/metrics")
	check(err)
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), "} ")
		var sum *float64
		switch {
		case strings.HasPrefix(name, "scheduler_schedule_attempts_total{") && strings.Contains(name, `result="unschedulable"`):
			sum = &failed
		case strings.HasPrefix(name, "scheduler_queue_incoming_pods_total{") && strings.Contains(name, `event="PopFromBackoffQ"`):
			sum = &early
		default:
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		check(err)
		*sum += n
	}
	return failed, early
}

// create creates pods of a round for a scheduler name; see pod for the memory.
func (c *cluster) create(prefix, scheduler string, count int, memory string) {
	inParallel(count, func(n int) error {
		p := labeled(pod(fmt.Sprintf("%s-%d", prefix, n), memory, nil))
		p["spec"].(map[string]any)["schedulerName"] = scheduler
		return c.admin.do("POST", benchPods, "application/json", p, nil)
	})
}

// endPod sets a pod's phase as a kubelet does, without which a scheduler would keep its share until a node agent confirms
// that its processes have ended.
func (c *cluster) endPod(name string) error {
	ended := map[string]any{"status": map[string]any{"phase": "Succeeded"}}
	return c.admin.do("PATCH", benchPods+"/"+name+"/status", "application/merge-patch+json", ended, nil)
}

// removePods ends and deletes the pods of a round, and keeps those that run from the start.
func (c *cluster) removePods() {
	var pods struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	check(c.admin.do("GET", benchPods+"?labelSelector=round", "application/json", nil, &pods))
	inParallel(len(pods.Items), func(n int) error { return c.endPod(pods.Items[n].Metadata.Name) })
	check(c.admin.do("DELETE", benchPods+"?labelSelector=round&gracePeriodSeconds=0", "application/json", nil, nil))
	await(5*time.Minute, "the round's pods are deleted", func() bool {
		var list struct{ Items []json.RawMessage }
		check(c.admin.do("GET", benchPods+"?labelSelector=round&limit=1", "application/json", nil, &list))
		return len(list.Items) == 0
	})
}

// labeled gives a pod the label of the pods that rounds create and remove.
func labeled(pod map[string]any) map[string]any {
	pod["metadata"].(map[string]any)["labels"] = map[string]string{"round": ""}
	return pod
}

// cpu returns the CPU time of all programs of each kind, and of this program.
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

// awaitUnschedulable waits until kube-scheduler has marked so many pods as unschedulable.
func (c *cluster) awaitUnschedulable(prefix string, count int) {
	await(10*time.Minute, fmt.Sprintf("%d pods are marked unschedulable", count), func() bool {
		time.Sleep(time.Second)
		pods, _ := c.writes(prefix)
		return pods["kube-scheduler"] >= count
	})
}

// bindingWatch records when pods are bound, as a client of the API server sees it.
type bindingWatch struct {
	lock           sync.Mutex
	times          map[string]time.Time
	deletionPrefix string
	deleted        atomic.Int64
	stopped        atomic.Bool
}

func (c *cluster) watchBindings() *bindingWatch {
	b := &bindingWatch{times: map[string]time.Time{}}
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	check(c.admin.do("GET", benchPods+"?limit=1", "application/json", nil, &list))
	go func() {
		// The API server closes the watch of a slow client, and clients are slow on a busy machine.
		for version := list.Metadata.ResourceVersion; !b.stopped.Load(); {
			version = c.follow(b, version)
		}
	}()
	return b
}

// follow watches from a resourceVersion until the API server closes the watch. It returns the last resourceVersion
// seen.
func (c *cluster) follow(b *bindingWatch, version string) string {
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
		remove := b.deletionPrefix != "" && strings.HasPrefix(name, b.deletionPrefix)
		b.lock.Unlock()
		if remove {
			b.deleted.Add(1)
			time.AfterFunc(time.Second, func() {
				_ = c.endPod(name)
				_ = c.admin.do("DELETE", benchPods+"/"+name+"?gracePeriodSeconds=0", "application/json", nil, nil)
			})
		}
	}
	return version
}

// deleteWhenBound makes follow delete pods with a name prefix a second after they are bound.
func (b *bindingWatch) deleteWhenBound(prefix string) {
	b.lock.Lock()
	b.deletionPrefix = prefix
	b.lock.Unlock()
}

// deletedPods returns how many pods are deleted, or will be within a second.
func (b *bindingWatch) deletedPods() int { return int(b.deleted.Load()) }

func (b *bindingWatch) stop() { b.stopped.Store(true) }

// await waits until so many pods are bound, and returns the times of the first and the last binding.
func (b *bindingWatch) await(prefix string, count int) (time.Time, time.Time) {
	var first, last time.Time
	previous, since := 0, time.Now()
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
		if n > previous {
			previous, since = n, time.Now()
		}
		if time.Since(since) > 2*time.Minute {
			check(fmt.Errorf("expected %d bound pods %s…, found %d, and none more within 2 minutes", count, prefix, n))
		}
		time.Sleep(200 * time.Millisecond)
	}
}
