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

// The null extender: its Filter returns the first nodes up to the limit, its Bind creates the Binding. kube-scheduler's
// throughput with it is the upper bound for any extender.

type extenderArgs struct {
	NodeNames *[]string
}

type bindingArgs struct {
	PodName, PodNamespace, PodUID, Node string
}

// reply sends a response with its length. Of a chunked one kube-scheduler's decoder, which stops at the end of the
// JSON, would leave the last chunk unread, and kube-scheduler would open a new connection for the next request.
func reply(w http.ResponseWriter, response any) {
	body, err := json.Marshal(response)
	check(err)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}

// runNull serves until it is killed.
func runNull(address string, limit int, api *client) {
	names := func(r *http.Request) []string {
		var args extenderArgs
		if err := json.NewDecoder(r.Body).Decode(&args); err != nil || args.NodeNames == nil {
			return nil
		}
		return *args.NodeNames
	}
	http.HandleFunc("/filter", func(w http.ResponseWriter, r *http.Request) {
		nodes := names(r)
		if limit > 0 && len(nodes) > limit {
			nodes = nodes[:limit]
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

// client is a client of the API server with one user's token.
type client struct {
	http   *http.Client
	server string
	token  string
}

func (c *client) send(method, path, contentType string, body []byte) (*http.Response, error) {
	request, err := http.NewRequest(method, c.server+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Content-Type", contentType)
	return c.http.Do(request)
}

// do sends body as JSON and decodes the JSON response into result unless that is nil. A status other than 2xx is an
// error.
func (c *client) do(method, path, contentType string, body, result any) error {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return err
		}
	}
	response, err := c.send(method, path, contentType, data)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 500))
		return fmt.Errorf("%s %s: %s: %s", method, path, response.Status, text)
	}
	if result != nil {
		return json.NewDecoder(response.Body).Decode(result)
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err
}
