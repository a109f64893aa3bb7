package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func dial(socket string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	options = append(options, grpc.WithInsecure(), grpc.WithBlock())
	return grpc.DialContext(ctx, "unix:"+socket, options...)
}

func list(client *grpc.ClientConn, contract string, options ...grpc.CallOption) ([][]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var response message
	err := client.Invoke(ctx, contract+"ListPods", message{}, &response, append(options, raw)...)
	return response.all(1), err
}

func get(client *grpc.ClientConn, uid string) (message, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var response message
	err := client.Invoke(ctx, v1alpha1+"GetPod", text(1, uid), &response, raw)
	return response, err
}

// An open watch.
type watch struct {
	stream grpc.ClientStream
	cancel context.CancelFunc
}

func open(client *grpc.ClientConn, contract string, limit time.Duration) (watch, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	stream, err := client.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, contract+"WatchPods", raw)
	if err == nil {
		err = stream.SendMsg(message{})
	}
	if err == nil {
		err = stream.CloseSend()
	}
	return watch{stream, cancel}, err
}

func (w watch) next() (message, error) {
	var event message
	err := w.stream.RecvMsg(&event)
	if err == io.EOF {
		err = errors.New("the watch ended")
	}
	return event, err
}

// The status that the watch ends with.
func (w watch) end() codes.Code {
	for {
		if _, err := w.next(); err != nil {
			return status.Code(err)
		}
	}
}

// One static pod with a fixed UID, so that an edit is the same pod, changed.
type manifest struct{ directory string }

func (m manifest) write(version string) error {
	pod := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod",
		"metadata": {"name": "go-client", "namespace": "clients", "uid": %q, "labels": {"version": %q}},
		"spec": {"containers": [{"name": "main", "image": "registry.example/main:1"}]}}`, uid, version)
	// Editors and tools replace files; a name with a dot in front is no manifest.
	temporary := filepath.Join(m.directory, ".go-client.new")
	if err := os.WriteFile(temporary, []byte(pod), 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, m.path())
}

func (m manifest) remove() error { return os.Remove(m.path()) }

func (m manifest) path() string { return filepath.Join(m.directory, "go-client.json") }
