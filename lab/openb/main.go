// Command openb writes the pod arrivals of the published runs on the openb trace. With them policies can be
// compared with the published figures pod by pod and not only in the mean:
//
//	go run . TRACE OUT
//	java -jar aliquot-simulator.jar --trace OUT --arrivals given --policy random,best-fit,fgd
//
// OUT contains each workload ten times, as NAME-42 to NAME-51, the seeds of the published runs. Their simulator
// (hkust-adsl/kubernetes-scheduler-simulator) shuffles a workload's pods with Go's generator, then adds or removes
// random pods until they request 130 % of the GPUs. Its published curves confirm that these are its arrivals: they give
// the allocated share for each percent requested, and until the first pod is unschedulable the two are equal to the
// last digit.
package main

import (
	"encoding/csv"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	nodesFile  = "openb_node_list_gpu_node.csv"
	podsPrefix = "openb_pod_list_"
	firstSeed  = 42
	seeds      = 10
	offered    = 1.3
	wholeGPU   = 1000
)

// The workloads with published figures.
var workloads = []string{"default", "cpu100", "gpushare40", "gpuspec20", "multigpu30"}

// A pod is a line of the trace.
type pod struct {
	fields       []string
	gpus, perGPU int64 // number of GPUs, and thousandths of each
}

func (p pod) requested() int64 { return p.gpus * p.perGPU }

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "openb:", err)
		os.Exit(1)
	}
}

// read returns a file's columns by name, and its lines without the header.
func read(file string) (map[string]int, [][]string) {
	in, err := os.Open(file)
	check(err)
	defer in.Close()
	lines, err := csv.NewReader(in).ReadAll()
	check(err)
	if len(lines) < 2 {
		check(fmt.Errorf("%s: expected a header and lines, found %d lines", file, len(lines)))
	}
	columns := map[string]int{}
	for i, name := range lines[0] {
		columns[name] = i
	}
	return columns, lines[1:]
}

func number(file string, line []string, columns map[string]int, name string) int64 {
	i, known := columns[name]
	if !known {
		check(fmt.Errorf("%s: expected a column %s, found none", file, name))
	}
	if line[i] == "" {
		return 0
	}
	value, err := strconv.ParseInt(line[i], 10, 64)
	if err != nil {
		check(fmt.Errorf("%s: expected a number as %s, found '%s'", file, name, line[i]))
	}
	return value
}

// arrivals repeats what the published simulator does for a seed: it shuffles the pods, sorted by name, then removes or
// adds random ones. It takes one number from the generator before.
func arrivals(workload []pod, capacity int64, seed int64) []pod {
	random := rand.New(rand.NewSource(seed))
	random.Int()
	pods := slices.Clone(workload)
	random.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	requested := int64(0)
	for _, p := range pods {
		requested += p.requested()
	}
	limit := offered * float64(capacity)
	if float64(requested) <= limit {
		return fill(random, workload, pods, requested, limit)
	}
	for float64(requested) > limit {
		i := random.Intn(len(pods))
		requested -= pods[i].requested()
		pods = slices.Delete(pods, i, i+1)
	}
	return pods
}

// fill adds random pods of the workload up to the limit.
func fill(random *rand.Rand, workload, pods []pod, requested int64, limit float64) []pod {
	for {
		next := workload[random.Intn(len(workload))]
		// The published simulator compares one GPU of a pod for several GPUs with the limit.
		if float64(requested+next.perGPU) > limit {
			return pods
		}
		requested += next.requested()
		pods = append(pods, next)
	}
}

func main() {
	if len(os.Args) != 3 || strings.HasPrefix(os.Args[1], "-") {
		fmt.Fprintln(os.Stderr, "usage: openb TRACE OUT: writes the arrivals of the published runs into the folder OUT")
		os.Exit(2)
	}
	trace, out := os.Args[1], os.Args[2]
	check(os.MkdirAll(out, 0o755))
	nodes, err := os.ReadFile(filepath.Join(trace, nodesFile))
	check(err)
	check(os.WriteFile(filepath.Join(out, nodesFile), nodes, 0o644))
	columns, lines := read(filepath.Join(trace, nodesFile))
	capacity := int64(0)
	for _, line := range lines {
		capacity += wholeGPU * number(nodesFile, line, columns, "gpu")
	}
	for _, name := range workloads {
		file := podsPrefix + name + ".csv"
		columns, lines := read(filepath.Join(trace, file))
		var workload []pod
		for _, line := range lines {
			workload = append(workload, pod{line, number(file, line, columns, "num_gpu"), number(file, line, columns, "gpu_milli")})
		}
		slices.SortFunc(workload, func(a, b pod) int { return strings.Compare(a.fields[columns["name"]], b.fields[columns["name"]]) })
		for seed := int64(firstSeed); seed < firstSeed+seeds; seed++ {
			write(filepath.Join(out, fmt.Sprintf("%s%s-%d.csv", podsPrefix, name, seed)), columns, arrivals(workload, capacity, seed))
		}
	}
}

// write writes pods in the trace's format, created at intervals of one second.
func write(file string, columns map[string]int, pods []pod) {
	var text strings.Builder
	lines := csv.NewWriter(&text)
	header := []string{"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "creation_time"}
	check(lines.Write(header))
	for i, p := range pods {
		line := make([]string, len(header))
		for j, name := range header {
			switch at, known := columns[name]; {
			case name == "name": // the same pod can occur twice
				line[j] = fmt.Sprintf("pod-%05d", i)
			case name == "creation_time":
				line[j] = strconv.Itoa(i)
			case known:
				line[j] = p.fields[at]
			}
		}
		check(lines.Write(line))
	}
	lines.Flush()
	check(os.WriteFile(file, []byte(text.String()), 0o644))
}
