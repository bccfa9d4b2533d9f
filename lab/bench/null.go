package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"strconv"
)

// The null extender: accepts every node, answers the first so many, binds what it is told to bind. What is left of
// kube-scheduler's throughput with it is the most that any extender can have.

type extenderArgs struct {
	NodeNames *[]string
}

type bindingArgs struct {
	PodName, PodNamespace, PodUID, Node string
}

// reply tells the answer's length: of one that comes in pieces kube-scheduler, whose decoder stops where the JSON does,
// would leave the last one unread, and open a new connection for the next request.
func reply(w http.ResponseWriter, answer any) {
	body, err := json.Marshal(answer)
	check(err)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}

// runNull serves until it is killed.
func runNull(address string, most int, api *client) {
	names := func(r *http.Request) []string {
		var args extenderArgs
		if err := json.NewDecoder(r.Body).Decode(&args); err != nil || args.NodeNames == nil {
			return nil
		}
		return *args.NodeNames
	}
	http.HandleFunc("/filter", func(w http.ResponseWriter, r *http.Request) {
		nodes := names(r)
		if most > 0 && len(nodes) > most {
			nodes = nodes[:most]
		}
		reply(w, map[string]any{"NodeNames": nodes, "FailedNodes": map[string]string{}, "Error": ""})
	})
	http.HandleFunc("/prioritize", func(w http.ResponseWriter, r *http.Request) {
		type score struct {
			Host  string
			Score int
		}
		scores := []score{}
		for _, node := range names(r) {
			scores = append(scores, score{node, 0})
		}
		reply(w, scores)
	})
	http.HandleFunc("/bind", func(w http.ResponseWriter, r *http.Request) {
		var args bindingArgs
		problem := ""
		if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
			problem = err.Error()
		} else {
			binding := map[string]any{
				"apiVersion": "v1", "kind": "Binding",
				"metadata": map[string]any{"namespace": args.PodNamespace, "name": args.PodName, "uid": args.PodUID},
				"target":   map[string]any{"apiVersion": "v1", "kind": "Node", "name": args.Node},
			}
			if err := api.do("POST", "/api/v1/namespaces/"+args.PodNamespace+"/pods/"+args.PodName+"/binding", "application/json", binding, nil); err != nil {
				problem = err.Error()
			}
		}
		reply(w, map[string]string{"Error": problem})
	})
	log.Fatal(http.ListenAndServe(address, nil))
}

// client speaks to the API server as one user.
type client struct {
	http   *http.Client
	server string
	token  string
}

func (c *client) send(method, path, kind string, body []byte) (*http.Response, error) {
	request, err := http.NewRequest(method, c.server+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Content-Type", kind)
	return c.http.Do(request)
}

// do sends body as JSON, and reads a JSON answer into answer unless that is nil. An answer that isn't 2xx is an error.
func (c *client) do(method, path, kind string, body, answer any) error {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return err
		}
	}
	response, err := c.send(method, path, kind, data)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 500))
		return fmt.Errorf("%s %s: %s: %s", method, path, response.Status, text)
	}
	if answer != nil {
		return json.NewDecoder(response.Body).Decode(answer)
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err
}
