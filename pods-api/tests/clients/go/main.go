// Drives the server as a stock Go gRPC client does: dial options are the defaults unless a check is about one. Prints
// one line per check and exits with 1 at the first that fails.
//
// Messages go through a codec that passes bytes on: what is checked is the wire, and no generated code is needed.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sort"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

const (
	uid    = "5a1e0d3c-0000-4000-8000-00000000d003"
	absent = "00000000-0000-4000-8000-000000000000"
	// For what must come soon; nothing here takes a tenth of it.
	patience = 20 * time.Second

	v1alpha1   = "/v1alpha1.Pods/"
	documented = "/Pods/"

	added    = 1
	modified = 2
	deleted  = 3
	synced   = 4
)

func main() {
	socket := flag.String("socket", "", "the server's socket")
	manifests := flag.String("manifests", "", "the directory it reads")
	pods := flag.Int("pods", 0, "how many pods it serves")
	large := flag.String("large-socket", "", "the socket of a server with more than 12 MB of pods")
	flag.Parse()
	if err := run(*socket, manifest{directory: *manifests}, *pods, *large); err != nil {
		fmt.Fprintln(os.Stderr, "FAILED:", err)
		os.Exit(1)
	}
}

func run(socket string, manifest manifest, pods int, large string) error {
	// The one slow check runs beside the others.
	keepalive := make(chan error, 1)
	go func() { keepalive <- checkKeepalive(socket) }()
	client, err := dial(socket)
	if err != nil {
		return err
	}
	defer client.Close()
	listed, err := checkListAndGet(client, pods)
	if err != nil {
		return fmt.Errorf("list and get: %w", err)
	}
	fmt.Println("ok list and get")
	checks := []struct {
		name string
		run  func() error
	}{
		{"field mask", func() error { return checkFieldMask(client, listed) }},
		{"watch", func() error { return checkWatch(client, manifest, listed) }},
		{"documented contract", func() error { return checkDocumented(client, manifest, listed) }},
		{"health", func() error { return checkHealth(client) }},
		{"deadline and cancellation", func() error { return checkDeadlineAndCancellation(client, len(listed)) }},
		{"compression", func() error { return checkCompression(client, len(listed)) }},
		{"large list", func() error { return checkLarge(large) }},
		{"keepalive", func() error { return <-keepalive }},
	}
	for _, check := range checks {
		if err := check.run(); err != nil {
			return fmt.Errorf("%s: %w", check.name, err)
		}
		fmt.Println("ok", check.name)
	}
	return nil
}

func checkListAndGet(client *grpc.ClientConn, expected int) ([][]byte, error) {
	listed, err := list(client, v1alpha1)
	if err != nil {
		return nil, err
	}
	if len(listed) != expected {
		return nil, fmt.Errorf("%d pods expected, %d listed", expected, len(listed))
	}
	uids := make([]string, 0, expected)
	for _, pod := range listed {
		uids = append(uids, identity(pod).uid)
	}
	if !sort.StringsAreSorted(uids) {
		return nil, fmt.Errorf("not in UID order: %v", uids)
	}
	for i, pod := range listed {
		response, err := get(client, uids[i])
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(response.first(1), pod) {
			return nil, fmt.Errorf("GetPod of %s differs from ListPods", uids[i])
		}
		// Stays below the rate limit of a caller: 100/s after a burst of 10.
		time.Sleep(20 * time.Millisecond)
	}
	_, err = get(client, absent)
	if status.Code(err) != codes.NotFound || status.Convert(err).Message() != "pod with UID "+absent+" not found" {
		return nil, fmt.Errorf("an unknown UID gives %v", err)
	}
	return listed, nil
}

func checkFieldMask(client *grpc.ClientConn, listed [][]byte) error {
	masked := func(mask string) ([][]byte, error) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		ctx = metadata.AppendToOutgoingContext(ctx, "x-kubernetes-fieldmask", mask)
		var response message
		err := client.Invoke(ctx, v1alpha1+"ListPods", message{}, &response, raw)
		return response.all(1), err
	}
	cut, err := masked("metadata.name")
	if err != nil {
		return err
	}
	if len(cut) != len(listed) {
		return fmt.Errorf("%d pods under a mask, %d without", len(cut), len(listed))
	}
	for i, pod := range cut {
		name := identity(listed[i]).name
		// metadata = 1 { name = 1 }, and nothing else.
		if !bytes.Equal(pod, text(1, string(text(1, name)))) {
			return fmt.Errorf("metadata.name of %s gives %x", name, pod)
		}
	}
	if _, err = masked("metadata.nope"); status.Code(err) != codes.InvalidArgument {
		return fmt.Errorf("a wrong mask gives %v", err)
	}
	return nil
}

func checkWatch(client *grpc.ClientConn, manifest manifest, listed [][]byte) error {
	watch, err := open(client, v1alpha1, patience)
	if err != nil {
		return err
	}
	defer watch.cancel()
	for _, pod := range listed {
		event, err := watch.next()
		if err != nil {
			return err
		}
		if event.number(1) != added || !bytes.Equal(event.first(2), pod) {
			return errors.New("the initial pods are not those of ListPods, each ADDED")
		}
	}
	event, err := watch.next()
	if err != nil {
		return err
	}
	if event.number(1) != synced || len(event.first(2)) != 0 {
		return fmt.Errorf("no marker but type %d", event.number(1))
	}
	var name string
	for i, kind := range []uint64{added, modified} {
		version := fmt.Sprint(i + 1)
		if err := manifest.write(version); err != nil {
			return err
		}
		event, err := watch.next()
		if err != nil {
			return err
		}
		pod := identity(event.first(2))
		if event.number(1) != kind || pod.uid != uid || pod.version != version {
			return fmt.Errorf("version %s of the manifest gives type %d of %+v", version, event.number(1), pod)
		}
		name = pod.name
	}
	if err := manifest.remove(); err != nil {
		return err
	}
	if event, err = watch.next(); err != nil {
		return err
	}
	pod := identity(event.first(2))
	if event.number(1) != deleted || pod != (identified{name: name, namespace: "clients", uid: uid}) {
		return fmt.Errorf("a removed manifest gives type %d of %+v", event.number(1), pod)
	}
	return nil
}

func checkDocumented(client *grpc.ClientConn, manifest manifest, listed [][]byte) error {
	same, err := list(client, documented)
	if err != nil {
		return err
	}
	if !equal(same, listed) {
		return errors.New("the two contracts list different pods")
	}
	watch, err := open(client, documented, patience)
	if err != nil {
		return err
	}
	defer watch.cancel()
	for _, pod := range listed {
		event, err := watch.next()
		if err != nil {
			return err
		}
		if !bytes.Equal(event.first(1), pod) {
			return errors.New("the documented watch does not begin with all pods")
		}
	}
	if err := manifest.write("1"); err != nil {
		return err
	}
	event, err := watch.next()
	if err != nil {
		return err
	}
	if pod := identity(event.first(1)); pod.uid != uid || pod.isDeleted {
		return fmt.Errorf("a new manifest gives %+v", pod)
	}
	if err := manifest.remove(); err != nil {
		return err
	}
	if event, err = watch.next(); err != nil {
		return err
	}
	if pod := identity(event.first(1)); pod.uid != uid || !pod.isDeleted || !pod.isMarkedDeleted {
		return fmt.Errorf("a removed manifest gives %+v", pod)
	}
	return nil
}

func checkHealth(client *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	health := grpc_health_v1.NewHealthClient(client)
	response, err := health.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "v1alpha1.Pods"})
	if err != nil {
		return err
	}
	if response.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		return fmt.Errorf("status %v", response.Status)
	}
	return nil
}

func checkDeadlineAndCancellation(client *grpc.ClientConn, pods int) error {
	watch, err := open(client, v1alpha1, time.Second)
	if err != nil {
		return err
	}
	defer watch.cancel()
	if code := watch.end(); code != codes.DeadlineExceeded {
		return fmt.Errorf("a watch past its deadline ends with %v", code)
	}
	if watch, err = open(client, v1alpha1, patience); err != nil {
		return err
	}
	if _, err := watch.next(); err != nil {
		return err
	}
	watch.cancel()
	if code := watch.end(); code != codes.Canceled {
		return fmt.Errorf("a cancelled watch ends with %v", code)
	}
	listed, err := list(client, v1alpha1)
	if err != nil || len(listed) != pods {
		return fmt.Errorf("after a cancellation: %d pods, %v", len(listed), err)
	}
	return nil
}

// The server reads no compressed messages and says so; the connection goes on.
func checkCompression(client *grpc.ClientConn, pods int) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var response message
	err := client.Invoke(ctx, v1alpha1+"GetPod", text(1, absent), &response, raw, grpc.UseCompressor(gzip.Name))
	if status.Code(err) != codes.Unimplemented {
		return fmt.Errorf("a compressed request gives %v", err)
	}
	listed, err := list(client, v1alpha1)
	if err != nil || len(listed) != pods {
		return fmt.Errorf("afterwards: %d pods, %v", len(listed), err)
	}
	return nil
}

// The most eager keepalive that grpc-go allows itself, without any call open. A server that takes it for a flood cuts
// the connection at the third ping, so this lives through three.
func checkKeepalive(socket string) error {
	client, err := dial(socket, grpc.WithKeepaliveParams(keepalive.ClientParameters{
		Time:                10 * time.Second,
		Timeout:             time.Second,
		PermitWithoutStream: true,
	}))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 32*time.Second)
	defer cancel()
	if client.WaitForStateChange(ctx, connectivity.Ready) {
		return fmt.Errorf("pings cost the connection: %v", client.GetState())
	}
	_, err = list(client, v1alpha1)
	return err
}

func checkLarge(socket string) error {
	client, err := dial(socket)
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := list(client, v1alpha1); status.Code(err) != codes.ResourceExhausted {
		return fmt.Errorf("a list above the client's 4 MiB gives %v", err)
	}
	// One of the documented remedies: a watch sends one pod at a time.
	watch, err := open(client, v1alpha1, patience)
	if err != nil {
		return err
	}
	defer watch.cancel()
	watched := 0
	for {
		event, err := watch.next()
		if err != nil {
			return err
		}
		if event.number(1) == synced {
			break
		}
		watched++
	}
	listed, err := list(client, v1alpha1, grpc.MaxCallRecvMsgSize(64<<20))
	if err != nil {
		return err
	}
	size := 0
	for _, pod := range listed {
		size += len(pod)
	}
	if size <= 12_000_000 || len(listed) != watched {
		return fmt.Errorf("%d pods of %d bytes listed, %d watched", len(listed), size, watched)
	}
	return nil
}

func equal(a, b [][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}
