package clienttest

import (
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// The document is one that others' tools accept, its examples included.
func TestDocumentIsValid(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromFile("../openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context(), openapi3.EnableExamplesValidation()); err != nil {
		t.Error(err)
	}
}
