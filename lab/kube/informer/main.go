// Runs client-go's informers on the resources of gpu.aliquot.io, as a controller does, and prints one JSON object a line:
// each request that the informers send, when they have synced, and each object that they add, update or delete.
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// line is what one line of the output says; At is in milliseconds since 1970.
type line struct {
	At       int64  `json:"at"`
	Event    string `json:"event"`
	Resource string `json:"resource,omitempty"`
	Name     string `json:"name,omitempty"`
	Version  string `json:"version,omitempty"`
	Phase    string `json:"phase,omitempty"`
	Objects  int    `json:"objects,omitempty"`
	URL      string `json:"url,omitempty"`
	Status   int    `json:"status,omitempty"`
}

var (
	output  = json.NewEncoder(os.Stdout)
	writing sync.Mutex
)

func report(l line) {
	l.At = time.Now().UnixMilli()
	writing.Lock()
	defer writing.Unlock()
	if output.Encode(l) != nil {
		os.Exit(1)
	}
}

// requests reports each request to the group when its answer begins.
type requests struct{ next http.RoundTripper }

func (r requests) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	l := line{Event: "request", URL: request.URL.RequestURI()}
	if err == nil {
		l.Status = response.StatusCode
	}
	report(l)
	return response, err
}

func handler(resource string) cache.ResourceEventHandlerFuncs {
	event := func(kind string, object any) {
		if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = unknown.Obj
		}
		u := object.(*unstructured.Unstructured)
		name := u.GetName()
		if u.GetNamespace() != "" {
			name = u.GetNamespace() + "/" + name
		}
		phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
		report(line{Event: kind, Resource: resource, Name: name, Version: u.GetResourceVersion(), Phase: phase})
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { event("add", object) },
		UpdateFunc: func(_, object any) { event("update", object) },
		DeleteFunc: func(object any) { event("delete", object) },
	}
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: informer KUBECONFIG RESOURCE...")
		os.Exit(2)
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return requests{next} })
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	stop := make(chan struct{})
	for _, resource := range os.Args[2:] {
		informer := factory.ForResource(
			schema.GroupVersionResource{Group: "gpu.aliquot.io", Version: "v1alpha1", Resource: resource}).Informer()
		if _, err := informer.AddEventHandler(handler(resource)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		go func() {
			if cache.WaitForCacheSync(stop, informer.HasSynced) {
				report(line{Event: "synced", Resource: resource, Objects: len(informer.GetStore().ListKeys())})
			}
		}()
	}
	factory.Start(stop)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	<-signals
}
