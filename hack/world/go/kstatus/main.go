// kstatus prints the status of the object on its input as Flux and Helm see it: the word, and then why.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	object := unstructured.Unstructured{}
	if err := object.UnmarshalJSON(input); err != nil {
		return err
	}
	result, err := status.Compute(&object)
	if err != nil {
		return err
	}
	_, err = fmt.Printf("%s\n%s\n", result.Status, result.Message)
	return err
}
