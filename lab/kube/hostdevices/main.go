// Advertises devices that are no GPUs to a node's kubelet, as the device plugins for network cards do: each argument is a
// resource and the number of its devices, such as rdma/hca_shared_devices_a=4. A container gets the IDs of its devices in a
// variable that is named as by github.com/k8snetworkplumbingwg/sriov-network-device-plugin, a character device for each, and
// a file of the host. It registers once: the kubelet forgets it when it restarts.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	plugins "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

type plugin struct {
	plugins.UnimplementedDevicePluginServer
	resource string
	devices  []*plugins.Device
}

func newPlugin(argument string) (*plugin, error) {
	resource, number, _ := strings.Cut(argument, "=")
	count, err := strconv.Atoi(number)
	if err != nil || count < 1 || !strings.Contains(resource, "/") {
		return nil, fmt.Errorf("expected DOMAIN/NAME=NUMBER, such as rdma/hca_shared_devices_a=4, found %q", argument)
	}
	p := &plugin{resource: resource}
	for i := range count {
		id := fmt.Sprintf("%s-%d", resource[strings.LastIndex(resource, "/")+1:], i)
		p.devices = append(p.devices, &plugins.Device{ID: id, Health: plugins.Healthy})
	}
	return p, nil
}

func (p *plugin) socket() string {
	return "lab-" + strings.ReplaceAll(p.resource, "/", "-") + ".sock"
}

// variable is PCIDEVICE_NVIDIA_COM_HOSTDEV for nvidia.com/hostdev.
func (p *plugin) variable() string {
	return "PCIDEVICE_" + strings.NewReplacer(".", "_", "/", "_", "-", "_").Replace(strings.ToUpper(p.resource))
}

func (p *plugin) GetDevicePluginOptions(context.Context, *plugins.Empty) (*plugins.DevicePluginOptions, error) {
	return &plugins.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *plugins.Empty, stream plugins.DevicePlugin_ListAndWatchServer) error {
	if err := stream.Send(&plugins.ListAndWatchResponse{Devices: p.devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (p *plugin) Allocate(_ context.Context, request *plugins.AllocateRequest) (*plugins.AllocateResponse, error) {
	response := &plugins.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		answer := &plugins.ContainerAllocateResponse{
			Envs:   map[string]string{p.variable(): strings.Join(container.DevicesIds, ",")},
			Mounts: []*plugins.Mount{{HostPath: "/etc/passwd", ContainerPath: "/run/" + p.socket(), ReadOnly: true}},
		}
		for _, id := range container.DevicesIds {
			answer.Devices = append(answer.Devices,
				&plugins.DeviceSpec{HostPath: "/dev/null", ContainerPath: "/dev/infiniband/" + id, Permissions: "rw"})
		}
		response.ContainerResponses = append(response.ContainerResponses, answer)
	}
	return response, nil
}

// serve answers the kubelet until it fails.
func (p *plugin) serve() error {
	path := plugins.DevicePluginPath + p.socket()
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	server, failed := grpc.NewServer(), make(chan error, 1)
	plugins.RegisterDevicePluginServer(server, p)
	go func() { failed <- server.Serve(listener) }()
	if err := p.register(); err != nil {
		return err
	}
	return <-failed
}

func (p *plugin) register() error {
	kubelet, err := grpc.NewClient("unix://"+plugins.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer kubelet.Close()
	_, err = plugins.NewRegistrationClient(kubelet).Register(context.Background(),
		&plugins.RegisterRequest{Version: plugins.Version, Endpoint: p.socket(), ResourceName: p.resource})
	return err
}

func main() {
	failed := make(chan error)
	for _, argument := range os.Args[1:] {
		p, err := newPlugin(argument)
		if err != nil {
			log.Fatal(err)
		}
		go func() { failed <- fmt.Errorf("%s: %w", p.resource, p.serve()) }()
	}
	log.Fatal(<-failed)
}
