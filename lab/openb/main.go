// Command openb writes the arrivals of the published runs on the openb trace, so that policies can be compared with the
// published figures pod by pod and not only in the mean:
//
//	go run . TRACE OUT
//	java -jar aliquot-scheduler.jar simulate --trace OUT --arrivals given --policy random,best-fit,fgd
//
// In OUT each workload is there ten times, as NAME-42 to NAME-51: the published runs had these seeds. Their simulator
// (hkust-adsl/kubernetes-scheduler-simulator) shuffles a workload's pods with Go's generator, and then draws more, or
// takes some away, until 130 % of the GPUs are asked for. That these are its arrivals can be seen in its published
// curves, which tell what was allocated at each percent asked for: until the first pod finds no place, these two are the
// same, to the last digit.
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

// The workloads that figures are published of, and that we compare.
var workloads = []string{"default", "cpu100", "gpushare40", "gpuspec20", "multigpu30"}

// A pod is its line of the trace.
type pod struct {
	fields       []string
	gpus, ofEach int64 // GPUs, and how much of each in thousandths
}

func (p pod) asks() int64 { return p.gpus * p.ofEach }

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "openb:", err)
		os.Exit(1)
	}
}

// read returns a file's head and its lines.
func read(file string) (map[string]int, [][]string) {
	in, err := os.Open(file)
	check(err)
	defer in.Close()
	lines, err := csv.NewReader(in).ReadAll()
	check(err)
	if len(lines) < 2 {
		check(fmt.Errorf("%s: expected a head and lines, found %d lines", file, len(lines)))
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

// arrivals is what the published simulator does with its seed: the pods in the order of their names, shuffled; then some
// taken away, or more drawn. Its generator is used once before.
func arrivals(workload []pod, capacity int64, seed int64) []pod {
	random := rand.New(rand.NewSource(seed))
	random.Int()
	pods := slices.Clone(workload)
	random.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	asked := int64(0)
	for _, p := range pods {
		asked += p.asks()
	}
	most := offered * float64(capacity)
	if float64(asked) <= most {
		return draw(random, workload, pods, asked, most)
	}
	for float64(asked) > most {
		i := random.Intn(len(pods))
		asked -= pods[i].asks()
		pods = slices.Delete(pods, i, i+1)
	}
	return pods
}

func draw(random *rand.Rand, workload, pods []pod, asked int64, most float64) []pod {
	for {
		next := workload[random.Intn(len(workload))]
		// Of a pod for several GPUs it looks at one.
		if float64(asked+next.ofEach) > most {
			return pods
		}
		asked += next.asks()
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

// write writes pods in the trace's form, each created a second after the one before it.
func write(file string, columns map[string]int, pods []pod) {
	var text strings.Builder
	lines := csv.NewWriter(&text)
	head := []string{"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "creation_time"}
	check(lines.Write(head))
	for i, p := range pods {
		line := make([]string, len(head))
		for j, name := range head {
			switch at, known := columns[name]; {
			case name == "name": // some are there more than once
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
