package present

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/hapaxpay/hapax/acquirer"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/payment"
	"github.com/hapaxpay/hapax/money"
)

var update = flag.Bool("update", false, "write api/events")

const (
	eventsDir     = "../../api/events"
	schemaEvent   = "urn:hapax:schema:event:1"
	publishedFile = "published.txt"
)

// written are the schemas by their names: each is made from the form in which the thing leaves the house.
var written = map[string]any{schemaEvent: EventBody{}, schemaPayment: PaymentBody{}, schemaRefund: RefundBody{}, schemaEndpoint: EndpointBody{}}

// fileOf gives the file of a schema: urn:hapax:schema:payment:1 is payment.1.schema.json.
func fileOf(urn string) string {
	return strings.ReplaceAll(strings.TrimPrefix(urn, "urn:hapax:schema:"), ":", ".") + ".schema.json"
}

func schemaOf(t *testing.T, urn string, form any) []byte {
	t.Helper()
	defs := huma.NewMapRegistry("#/$defs/", func(typ reflect.Type, hint string) string {
		return strings.TrimSuffix(huma.DefaultSchemaNamer(typ, hint), "Body")
	})
	s := huma.SchemaFromType(defs, reflect.TypeOf(form))
	if data, isEvent := s.Properties["data"]; isEvent {
		data.Type = huma.TypeObject // bytes have no type
	}
	whole := map[string]any{}
	merge(t, whole, s)
	whole["$schema"], whole["$id"] = "https://json-schema.org/draft/2020-12/schema", urn
	if all := defs.Map(); len(all) > 0 {
		whole["$defs"] = all
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(whole); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func merge(t *testing.T, into map[string]any, v any) {
	t.Helper()
	raw, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(raw, &into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(eventsDir, name))
	if err != nil && !(*update && os.IsNotExist(err)) {
		t.Fatal(err)
	}
	return raw
}

func write(t *testing.T, name string, raw []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(eventsDir, name), raw, 0o644); err != nil {
		t.Fatal(err)
	}
}

// facts are what a consumer may rely on: members, their types, what is always there, what a value may be.
func facts(at string, v any) (all []string) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	for name, inner := range m {
		switch name {
		case "properties", "$defs":
			for member, s := range inner.(map[string]any) {
				all = append(all, facts(at+"."+member, s)...)
			}
		case "items":
			all = append(all, facts(at+"[]", inner)...)
		case "required", "enum":
			for _, one := range inner.([]any) {
				all = append(all, fmt.Sprintf("%s %s %v", at, name, one))
			}
		case "type", "format", "$ref", "additionalProperties":
			all = append(all, fmt.Sprintf("%s %s %v", at, name, inner))
		}
	}
	return all
}

// TestWrittenSchemas: the schemas are what the code says, and what was published of them stays: more may come, nothing goes.
// Something that must go or change its type takes a new version, beside the old one.
func TestWrittenSchemas(t *testing.T) {
	var now []string
	for urn, form := range written {
		want := schemaOf(t, urn, form)
		if *update {
			write(t, fileOf(urn), want)
		}
		if !bytes.Equal(read(t, fileOf(urn)), want) {
			t.Errorf("%s is not what the code says; run: go test ./internal/present/ -run TestWritten -update", fileOf(urn))
		}
		var tree any
		if err := json.Unmarshal(want, &tree); err != nil {
			t.Fatal(err)
		}
		now = append(now, facts(strings.TrimPrefix(urn, "urn:hapax:schema:"), tree)...)
	}
	slices.Sort(now)
	published := strings.FieldsFunc(string(read(t, publishedFile)), func(r rune) bool { return r == '\n' })
	for _, fact := range published {
		if !slices.Contains(now, fact) {
			t.Errorf("consumers rely on this, and it is gone: %s", fact)
		}
	}
	if *update && !t.Failed() {
		write(t, publishedFile, []byte(strings.Join(now, "\n")+"\n"))
		published = now
	}
	for _, fact := range now {
		if !slices.Contains(published, fact) {
			t.Errorf("%s does not list: %s", publishedFile, fact)
		}
	}
}

var rowOfCatalogue = regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\| ([0-9.]+) \\| \\[`([a-z_]+:[0-9]+)`\\]\\(([a-z_.0-9]+)\\) \\| (.+) \\|$")

// TestTheCatalogueListsEveryType: each type that can be sent is in the catalogue, with the schema that its bytes name, and no
// other is.
func TestTheCatalogueListsEveryType(t *testing.T) {
	source, err := os.ReadFile("../payment/model.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`Event\w+\s+EventType = "([a-z_.]+)"`).FindAllSubmatch(source, -1)
	if len(declared) != len(payment.EventTypes) {
		t.Errorf("%d types are declared, %d are in EventTypes", len(declared), len(payment.EventTypes))
	}
	for _, d := range declared {
		if !slices.Contains(payment.EventTypes, payment.EventType(d[1])) {
			t.Errorf("%s is not in EventTypes", d[1])
		}
	}
	var listed []payment.EventType
	for _, row := range rowOfCatalogue.FindAllStringSubmatch(string(read(t, "README.md")), -1) {
		typ := payment.EventType(row[1])
		listed = append(listed, typ)
		urn := "urn:hapax:schema:" + row[3]
		if got := schemaUsed(t, rendered(typ, payment.Paid)); got != urn || row[4] != fileOf(urn) {
			t.Errorf("%s names the schema %s, the catalogue %s in %s", typ, got, urn, row[4])
		}
	}
	if !slices.Equal(listed, payment.EventTypes) {
		t.Errorf("the catalogue lists %v, want %v", listed, payment.EventTypes)
	}
}

func schemaUsed(t *testing.T, raw []byte) string {
	t.Helper()
	var e EventBody
	if err := json.Unmarshal(raw, &e); err != nil {
		t.Fatal(err)
	}
	return e.DataSchema
}

// rendered makes the bytes of an event as the flows do.
func rendered(typ payment.EventType, status payment.Status) []byte {
	i, p := rows()
	p.Status, p.AcquirerReference, p.Dispute, p.RedirectURL = status, "ch_1", payment.DisputeOpened, "https://page.example/"
	e := payment.Event{Merchant: intentID, ID: payID, Intent: i.ID, Payment: p.ID, Version: 3, Key: "seed:event:3", Type: typ, At: at}
	switch {
	case typ.OfRefund():
		m := payment.Modification{ID: payID, Type: payment.Refund, Status: payment.ModSucceeded, Amount: money.Must(5, "KWD"), Action: acquirer.ActionRefund, CreatedAt: at, UpdatedAt: at}
		return EventRefund(e, i, p, m)
	case strings.HasPrefix(string(typ), "webhook_endpoint."):
		e.Intent, e.Endpoint = id.ID{}, payID
		x := payment.Endpoint{ID: payID, URL: "https://shop.example/", Enabled: false, DisabledWhy: payment.DisabledFailing, FailingSince: at,
			Types: []payment.EventType{payment.EventPaid}, CreatedAt: at, UpdatedAt: at}
		return EventEndpoint(e, Endpoint(x))
	}
	return Event(e, i, p, false)
}

// validators compiles the schemas as they are published.
func validators(t *testing.T) map[string]*jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	all := map[string]*jsonschema.Schema{}
	for urn := range written {
		tree, err := jsonschema.UnmarshalJSON(bytes.NewReader(read(t, fileOf(urn))))
		if err == nil {
			err = c.AddResource(urn, tree)
		}
		if err == nil {
			all[urn], err = c.Compile(urn)
		}
		if err != nil {
			t.Fatalf("%s: %v", urn, err)
		}
	}
	return all
}

// TestEventsAreValid: whatever is rendered is valid by the published schemas; and what is not is found out.
func TestEventsAreValid(t *testing.T) {
	schemas := validators(t)
	valid := func(raw []byte) error {
		whole, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		if err != nil {
			return err
		}
		if err := schemas[schemaEvent].Validate(whole); err != nil {
			return err
		}
		return schemas[schemaUsed(t, raw)].Validate(whole.(map[string]any)["data"])
	}
	for _, typ := range payment.EventTypes {
		for _, status := range payment.Statuses {
			if err := valid(rendered(typ, status)); err != nil {
				t.Errorf("%s, %s: %v", typ, status, err)
			}
		}
	}
	good := string(rendered(payment.EventPaid, payment.Paid))
	for from, to := range map[string]string{`"amount":18600`: `"amount":"18600"`, `"status":"paid"`: `"status":"payed"`, `"currency":"KWD",`: ``,
		`"subjectversion":3`: `"subjectversion":"3"`, `"conflict":false`: `"conflict":null`, `"created_at":"2026`: `"created_at":"in 2026`} {
		if err := valid([]byte(strings.ReplaceAll(good, from, to))); err == nil {
			t.Errorf("%s counts as valid", to)
		}
	}
}
