package main

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A cluster of hollow nodes: etcd, kube-apiserver, kube-schedulers and Node objects without kubelets. It runs in its
// own network namespace, where all ports are free and which has no connection to other networks.

const (
	apiServerPort = 6443
	apiServer     = "https://127.0.0.1:6443"
	namespace     = "aliquot"
	leases        = "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases"
	benchPods     = "/api/v1/namespaces/bench/pods"
	gpusPerNode   = 8
	memoryMiB     = 81920
	nullPort      = "127.0.0.1:9997"

	// The memory request of a pod that is bound in a round. A full node has 104 of them; a kubelet accepts 110 pods.
	podMiB = "6000"

	// Pods per wave while programs warm up. Each wave is deleted before the next one is created.
	warmUpWave = 2000
	// Pods that are bound at the start of a turn and not counted.
	leadPods = 200
)

// Prefixes of the programs' names, and the name of this program in the results.
var kinds = []string{"etcd", "kube-apiserver", "kube-scheduler", "extender"}

const self = "this benchmark"

type program struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
}

type cluster struct {
	options  options
	folder   string
	admin    *client
	audit    string
	programs []*program
}

func (c *cluster) start(name string, environment []string, command ...string) *program {
	out, err := os.OpenFile(filepath.Join(c.folder, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	check(err)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), environment...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	check(cmd.Start())
	p := &program{name, cmd, make(chan struct{})}
	go func() { _ = cmd.Wait(); close(p.done); out.Close() }()
	c.programs = append(c.programs, p)
	return p
}

func (p *program) stop(signal syscall.Signal) {
	_ = p.cmd.Process.Signal(signal)
	<-p.done
}

func (p *program) signal(signal syscall.Signal) { _ = p.cmd.Process.Signal(signal) }

// closeConnections shuts down the program's connections to a port, as its own shutdown(2) would.
func (p *program) closeConnections(port int) {
	const pidfdOpen, pidfdGetfd = 434, 438 // equal on all architectures (Linux 5.6, include/uapi/asm-generic/unistd.h)
	pid := p.cmd.Process.Pid
	process, _, failed := syscall.Syscall(pidfdOpen, uintptr(pid), 0, 0)
	if failed != 0 {
		check(os.NewSyscallError("pidfd_open", failed))
	}
	defer syscall.Close(int(process))
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	check(err)
	for _, file := range files {
		number, err := strconv.Atoi(file.Name())
		check(err)
		duplicate, _, failed := syscall.Syscall(pidfdGetfd, process, uintptr(number), 0)
		if failed != 0 {
			check(os.NewSyscallError("pidfd_getfd", failed))
		}
		peer, _ := syscall.Getpeername(int(duplicate)) // fails for files that are not sockets
		switch peer := peer.(type) {
		case *syscall.SockaddrInet4:
			if peer.Port == port {
				_ = syscall.Shutdown(int(duplicate), syscall.SHUT_RDWR)
			}
		case *syscall.SockaddrInet6:
			if peer.Port == port {
				_ = syscall.Shutdown(int(duplicate), syscall.SHUT_RDWR)
			}
		}
		syscall.Close(int(duplicate))
	}
}

func (p *program) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func (p *program) cpu() time.Duration { return cpu(p.cmd.Process.Pid) }

// cpu returns the CPU time that a process has used in all its threads.
func cpu(pid int) time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// proc(5): utime and stime are fields 14 and 15, in hundredths of a second. Field 2, in parentheses, may contain
	// spaces.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// resident returns the program's RSS in MiB.
func (p *program) resident() int {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	for _, line := range strings.Split(string(data), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmRSS:" {
			kb, _ := strconv.Atoi(fields[1])
			return kb / 1024
		}
	}
	return 0
}

func newClient(token string) *client {
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true}, // the server's self-signed certificate, on loopback
		MaxIdleConnsPerHost: 64,
	}
	return &client{http: &http.Client{Transport: transport}, server: apiServer, token: token}
}

var webhookNames = []string{"gpu.aliquot.io", "void.aliquot.io"}

// The users of this benchmark, which the audit log names.
var users = []string{"driver", "kube-scheduler", "extender"}

func startCluster(o options, folder string) *cluster {
	c := &cluster{options: o, folder: folder, audit: filepath.Join(folder, "audit.log")}
	var tokens strings.Builder
	for _, user := range users {
		fmt.Fprintf(&tokens, "%s-token,%s,%s,system:masters\n", user, user, user)
		c.write(user+".kubeconfig", fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: bench, cluster: {server: "%s", insecure-skip-tls-verify: true}}]
users: [{name: user, user: {token: %s-token}}]
contexts: [{name: bench, context: {cluster: bench, user: user}}]
current-context: bench
`, apiServer, user))
	}
	tokensFile := c.write("tokens", tokens.String())
	key := filepath.Join(folder, "service-accounts.key")
	check(exec.Command("openssl", "genrsa", "-out", key, "2048").Run())
	c.start("etcd", nil, filepath.Join(o.kube, "etcd"), "--data-dir="+filepath.Join(folder, "etcd"), "--unsafe-no-fsync", "--log-level=error",
		"--quota-backend-bytes=4294967296", "--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:0")
	c.start("kube-apiserver", nil, filepath.Join(o.kube, "kube-apiserver"), "--etcd-servers=http://127.0.0.1:2379", "--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1", "--secure-port=6443", "--cert-dir="+folder, "--token-auth-file="+tokensFile,
		"--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount", "--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-signing-key-file="+key, "--service-account-key-file="+key, "--service-cluster-ip-range=10.96.0.0/16",
		"--audit-policy-file="+o.auditPolicy, "--audit-log-path="+c.audit,
		"--audit-log-maxsize=100000") // writes counts in one file; the default rotates it after 100 MB
	c.admin = newClient("driver-token")
	await(90*time.Second, "the API server is ready", func() bool { return c.admin.do("GET", "/readyz", "", nil, nil) == nil })
	for _, name := range []string{namespace, "bench"} {
		check(c.admin.do("POST", "/api/v1/namespaces", "application/json", object("Namespace", name), nil))
	}
	// The scheduler becomes ready only once the webhooks trust its certificate (trustExtender). No rule makes the API server
	// call them: the benchmark creates pods as admission leaves them.
	var webhooks []map[string]any
	for _, name := range webhookNames {
		webhooks = append(webhooks, map[string]any{"name": name, "sideEffects": "None", "admissionReviewVersions": []string{"v1"},
			"clientConfig": map[string]any{"service": map[string]string{"namespace": namespace, "name": "aliquot-webhook"}}})
	}
	configuration := object("MutatingWebhookConfiguration", "aliquot")
	configuration["apiVersion"] = "admissionregistration.k8s.io/v1"
	configuration["webhooks"] = webhooks
	check(c.admin.do("POST", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", "application/json", configuration, nil))
	return c
}

// trustExtender does what the chart's Job does: it makes the webhooks trust the authority that the extender has created.
func (c *cluster) trustExtender() {
	var secret struct{ Data map[string]string }
	await(2*time.Minute, "the extender's authority exists", func() bool {
		return c.admin.do("GET", "/api/v1/namespaces/"+namespace+"/secrets/aliquot-webhook-ca", "", nil, &secret) == nil
	})
	var webhooks []map[string]any
	for _, name := range webhookNames {
		webhooks = append(webhooks, map[string]any{"name": name, "clientConfig": map[string]string{"caBundle": secret.Data["ca.crt"]}})
	}
	check(c.admin.do("PATCH", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/aliquot",
		"application/strategic-merge-patch+json", map[string]any{"webhooks": webhooks}, nil))
}

func (c *cluster) write(name, text string) string {
	file := filepath.Join(c.folder, name)
	check(os.WriteFile(file, []byte(text), 0o600))
	return file
}

func object(kind, name string) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": name}}
}

func nodeName(number int) string { return fmt.Sprintf("gpu-node-%05d", number) }

func gpuUUID(node, gpu int) string {
	return fmt.Sprintf("GPU-00000000-0000-4000-%04x-%012x", node, gpu)
}

// inParallel calls work for 0 to count-1.
func inParallel(count int, work func(int) error) {
	const workers = 16
	numbers := make(chan int)
	var group sync.WaitGroup
	for i := 0; i < workers; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for n := range numbers {
				check(work(n))
			}
		}()
	}
	for n := 0; n < count; n++ {
		numbers <- n
	}
	close(numbers)
	group.Wait()
}

// makeNodes creates hollow nodes: Node objects with what a node agent and a kubelet write, without these programs.
func (c *cluster) makeNodes() {
	slots := c.options.slots
	inParallel(c.options.nodes, func(n int) error {
		var gpus []map[string]any
		for g := 0; g < gpusPerNode; g++ {
			gpus = append(gpus, map[string]any{"uuid": gpuUUID(n, g), "index": g, "model": "NVIDIA A100-SXM4-80GB",
				"memoryMiB": memoryMiB, "contextMiB": 0, "numa": g / 4, "healthy": true, "mode": "shim"})
		}
		inventory, _ := json.Marshal(map[string]any{"version": 1, "visibleDevices": "{uuid}", "memoryScaling": 1.0, "coreScaling": 1.0,
			"slots": slots, "gpus": gpus})
		resources := map[string]string{"cpu": "1000", "memory": "4Ti", "pods": "10000", "aliquot.io/vgpu": strconv.Itoa(gpusPerNode * slots),
			"nvidia.com/gpumem": strconv.Itoa(gpusPerNode * memoryMiB), "nvidia.com/gpucores": strconv.Itoa(gpusPerNode * 100),
			"nvidia.com/gpumem-percentage": strconv.Itoa(gpusPerNode * 100)}
		node := object("Node", nodeName(n))
		metadata := node["metadata"].(map[string]any)
		metadata["labels"] = map[string]string{"gpu": "on", "kubernetes.io/hostname": nodeName(n)}
		metadata["annotations"] = map[string]string{"aliquot.io/gpus": string(inventory)}
		node["status"] = map[string]any{"capacity": resources, "allocatable": resources,
			"conditions": []map[string]string{{"type": "Ready", "status": "True"}}}
		if err := c.admin.do("POST", "/api/v1/nodes", "application/json", node, nil); err != nil {
			return err
		}
		// Removes the taint that the admission plugin TaintNodesByCondition gives every new node; no controller runs to do
		// it.
		return c.admin.do("PATCH", "/api/v1/nodes/"+nodeName(n), "application/merge-patch+json", map[string]any{"spec": map[string]any{"taints": nil}}, nil)
	})
}

// pod returns a pod that requests so many MiB of a GPU, or a whole one if memory is empty.
func pod(name, memory string, annotations map[string]string) map[string]any {
	p := object("Pod", name)
	p["metadata"].(map[string]any)["annotations"] = annotations
	limits := map[string]string{"aliquot.io/vgpu": "1"}
	if memory != "" {
		limits["nvidia.com/gpumem"] = memory
	}
	p["spec"] = map[string]any{"schedulerName": "aliquot-scheduler", "terminationGracePeriodSeconds": 0,
		"containers": []map[string]any{{"name": "main", "image": "example.com/app:1",
			"command": []string{"python3", "/srv/app/serve.py", "--port", "8080"},
			"env": []map[string]any{{"name": "MODEL", "value": "resnet50"},
				{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": map[string]any{"fieldRef": map[string]string{"fieldPath": "metadata.annotations['aliquot.io/visible-devices.main']"}}}},
			"resources": map[string]any{"limits": limits, "requests": map[string]string{"cpu": "100m", "memory": "256Mi"}}}}}
	return p
}

// fill creates running pods, round-robin on all nodes and GPUs.
func (c *cluster) fill(count int) {
	inParallel(count, func(n int) error {
		node, gpu := n%c.options.nodes, n/c.options.nodes%gpusPerNode
		p := pod(fmt.Sprintf("running-%d", n), "1000", map[string]string{
			"aliquot.io/vgpu.main":            gpuUUID(node, gpu) + " memory=1000Mi cores=0 policy=fixed context=0Mi\n",
			"aliquot.io/visible-devices.main": gpuUUID(node, gpu)})
		p["spec"].(map[string]any)["nodeName"] = nodeName(node)
		return c.admin.do("POST", benchPods, "application/json", p, nil)
	})
}

// writes counts writes in the API server's audit log: of pods in the namespace bench with a name prefix, by user, and
// of other objects, by resource. It omits the driver's writes, events and Leases.
func (c *cluster) writes(prefix string) (pods, others map[string]int) {
	file, err := os.Open(c.audit)
	check(err)
	defer file.Close()
	pods, others = map[string]int{}, map[string]int{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var entry struct {
			User      struct{ Username string }
			ObjectRef struct{ Resource, Namespace, Name string }
		}
		if json.Unmarshal(lines.Bytes(), &entry) != nil {
			continue
		}
		ref := entry.ObjectRef
		switch {
		case !slices.Contains(users, entry.User.Username) || entry.User.Username == "driver":
		case ref.Resource == "events" || ref.Resource == "leases":
		case ref.Resource != "pods":
			others[ref.Resource]++
		case ref.Namespace == "bench" && strings.HasPrefix(ref.Name, prefix):
			pods[entry.User.Username]++
		}
	}
	check(lines.Err())
	return pods, others
}
