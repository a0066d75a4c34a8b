package httpapi

import (
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hapaxpay/hapax/internal/present"
	"github.com/hapaxpay/hapax/internal/problem"
)

// contract is the OpenAPI document while it is being put together; api/openapi.yaml is written from it by a test.
type contract struct{ *huma.OpenAPI }

const (
	bearer      = "api_key"
	aboutHapax  = "Hapax moves money at most once per payment intent. Amounts are whole minor units; times are UTC, RFC 3339.\n\nSend one Idempotency-Key for one purchase, keep it until the final answer, and reuse it on every retry. 409 never means that a payment was refused; 202 means that the result is not known yet: repeat the same key."
	aboutKey    = "One key for one purchase, kept until the final answer, reused on every retry. 1 to 255 visible ASCII characters, bare or as a quoted string."
	aboutChange = "One key for one capture, cancel, code or refund, kept until the final answer, reused on every retry. 1 to 255 visible ASCII characters, bare or as a quoted string."
	aboutCursor = "next_cursor of the page before"
)

func newContract(version string) contract {
	named := func(t reflect.Type, hint string) string {
		return strings.TrimSuffix(huma.DefaultSchemaNamer(t, hint), "Body")
	}
	return contract{&huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info:    &huma.Info{Title: "Hapax", Version: version, Description: aboutHapax},
		Components: &huma.Components{
			Schemas: huma.NewMapRegistry("#/components/schemas/", named),
			SecuritySchemes: map[string]*huma.SecurityScheme{bearer: {Type: "http", Scheme: "bearer",
				Description: "hpx_test_… or hpx_live_…: the mode follows from the key, and nothing crosses"}},
		},
	}}
}

func (c contract) json() []byte {
	b, err := c.MarshalJSON()
	if err != nil {
		panic("httpapi: the contract cannot be written: " + err.Error())
	}
	return b
}

func (c contract) schema(v any) *huma.Schema {
	return c.Components.Schemas.Schema(reflect.TypeOf(v), true, "")
}

// takes gives the body of a command and the shape by which the scan judges it: one source for both.
func (c contract) takes(v any) (*huma.RequestBody, shape) {
	ref := c.schema(v)
	return &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: ref}}},
		shapeOf(c.Components.Schemas.SchemaFromRef(ref.Ref))
}

// tells lists the answers of an operation: the good ones with what they hold, and the problems by their codes.
func (c contract) tells(good map[int]*huma.Response, codes ...problem.Code) map[string]*huma.Response {
	all := map[string]*huma.Response{}
	for status, r := range good {
		all[strconv.Itoa(status)] = r
	}
	for _, row := range problem.Table { // in the table's order, so that the document does not change by itself
		if !slices.Contains(codes, row.Code) && !slices.Contains(always, row.Code) {
			continue
		}
		name := strconv.Itoa(row.Status)
		r := all[name]
		if r == nil {
			r = &huma.Response{Content: map[string]*huma.MediaType{}, Headers: headers("Request-Id")}
			all[name] = r
		}
		if slices.Contains(waits, row.Status) {
			r.Headers["Retry-After"] = header("Retry-After")
		}
		r.Description = strings.TrimSpace(r.Description + "\n`" + string(row.Code) + "`: " + row.Title)
		r.Content["application/problem+json"] = &huma.MediaType{Schema: c.schema(present.ProblemBody{})}
	}
	return all
}

// waits are the statuses of problems that may say when to repeat.
var waits = []int{http.StatusConflict, http.StatusTooManyRequests, http.StatusServiceUnavailable}

// always can be told by every operation.
var always = []problem.Code{problem.Malformed, problem.Unauthenticated, problem.RateLimited, problem.TryAgain, problem.Internal}

// commands can be told by every operation that takes a key and a body.
var commands = []problem.Code{problem.KeyMissing, problem.KeyInvalid, problem.TooLarge, problem.UnsupportedMediaType,
	problem.InvalidValue, problem.LooksLikeCardNumber, problem.OperationInProgress, problem.KeyReuse, problem.SendsOnHold}

func (c contract) good(description string, schema *huma.Schema, names ...string) *huma.Response {
	return &huma.Response{Description: description, Headers: headers(append([]string{"Request-Id"}, names...)...),
		Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}
}

var aboutHeaders = map[string]string{
	"Request-Id":              "Names this exchange; tell it to support",
	"Idempotency-Replayed":    "true: these bytes were given before",
	"Idempotency-Key-Expires": "When the stored answer may go",
	"Original-Request":        "Request-Id of the first request with this key",
	"Retry-After":             "Seconds; repeat the same key then",
	"Location":                "Where to look it up",
	codeHeader:                "hapax dev only: the one-time code. Elsewhere it is sent by webhook or mail",
}

// answerHeaders can stand on every answer to a command.
var answerHeaders = []string{"Idempotency-Replayed", "Idempotency-Key-Expires", "Original-Request", "Retry-After", "Location"}

func headers(names ...string) map[string]*huma.Param {
	all := map[string]*huma.Param{}
	for _, name := range names {
		all[name] = header(name)
	}
	return all
}

func header(name string) *huma.Param {
	return &huma.Param{Description: aboutHeaders[name], Schema: &huma.Schema{Type: huma.TypeString}}
}

func (c contract) list(item *huma.Schema) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, Required: []string{"data", "has_more", "next_cursor"},
		Properties: map[string]*huma.Schema{
			"data":        {Type: huma.TypeArray, Items: item, Description: "Newest first"},
			"has_more":    {Type: huma.TypeBoolean},
			"next_cursor": {Type: huma.TypeString, Nullable: true},
		}}
}

func keyParameter(about string) *huma.Param {
	longest := MaxKey
	return &huma.Param{Name: KeyHeader, In: "header", Required: true, Description: about,
		Schema: &huma.Schema{Type: huma.TypeString, MaxLength: &longest}}
}

func pathID(prefix string) *huma.Param {
	return &huma.Param{Name: "id", In: "path", Required: true,
		Schema: &huma.Schema{Type: huma.TypeString, Pattern: "^" + prefix + "[0-9a-z]{26}$"}}
}

// queryParameters describes filters, of which exactly one is wanted, and the page.
func queryParameters(filters []string) []*huma.Param {
	var all []*huma.Param
	for _, name := range filters {
		all = append(all, &huma.Param{Name: name, In: "query", Description: "Exactly one filter is wanted",
			Schema: &huma.Schema{Type: huma.TypeString}})
	}
	return append(all, pageOf(aboutCursor)...)
}

// pageOf describes the parameters of a page.
func pageOf(cursor string) []*huma.Param {
	least, most := 1.0, float64(MaxPage)
	return []*huma.Param{
		{Name: "limit", In: "query",
			Schema: &huma.Schema{Type: huma.TypeInteger, Minimum: &least, Maximum: &most, Default: defaultPage}},
		{Name: "cursor", In: "query", Description: cursor, Schema: &huma.Schema{Type: huma.TypeString}}}
}

// routes is the whole contract: what there is, what it takes, what it tells, what answers it.
func (d *door) routes() []route {
	return append([]route{d.routeCreateIntent(), d.routeIntents(), d.routeIntent(), d.routeCreatePayment(), d.routePayments(), d.routePayment(),
		d.routeCheck(), d.routeCapture(), d.routeCancel(), d.routeCancelCode(), d.routeRefund(), d.routeRefunds(), d.routeRefundByID(),
		d.routeEvents(), d.routeEvent(), d.routeMessage()},
		d.endpointRoutes()...)
}

func (d *door) operation(method, path, name, summary string) huma.Operation {
	return huma.Operation{Method: method, Path: path, OperationID: name, Summary: summary,
		Security: []map[string][]string{{bearer: {}}}}
}

func (d *door) routeCreateIntent() route {
	c := d.contract
	op := d.operation(http.MethodPost, "/v1/payment_intents", "create-payment-intent", "Create an intent, or amend the one with this client reference")
	op.Parameters = []*huma.Param{keyParameter(aboutKey)}
	body, members := c.takes(IntentRequest{})
	intent := c.schema(present.IntentBody{})
	c.Components.Schemas.SchemaFromRef(intent.Ref).Properties["metadata"].Type = huma.TypeObject // bytes have no type
	op.RequestBody = body
	op.Responses = c.tells(map[int]*huma.Response{
		201: c.good("Created", intent, answerHeaders...),
		200: c.good("It existed already, or was amended", intent, answerHeaders...),
		202: c.good("Not known yet: repeat the same key", c.schema(present.UnknownBody{}), answerHeaders...),
	}, append(commands, problem.IntentConflict)...)
	return route{Operation: op, body: members, handle: d.createIntent}
}

func (d *door) routeIntents() route {
	c := d.contract
	op := d.operation(http.MethodGet, "/v1/payment_intents", "list-payment-intents", "Find intents by client reference or customer")
	op.Parameters = queryParameters(intentFilters)
	op.Responses = c.tells(map[int]*huma.Response{200: c.good("A page", c.list(c.schema(present.IntentBody{})))})
	return route{Operation: op, list: true, handle: d.intents}
}

func (d *door) routeIntent() route {
	c := d.contract
	op := d.operation(http.MethodGet, "/v1/payment_intents/{id}", "get-payment-intent", "Look at an intent and its payments")
	op.Parameters = []*huma.Param{pathID("pi_")}
	op.Responses = c.tells(map[int]*huma.Response{200: c.good("The intent", c.schema(present.IntentBody{}))}, problem.NotFound)
	return route{Operation: op, handle: d.intent}
}

func (d *door) routeCreatePayment() route {
	c := d.contract
	op := d.operation(http.MethodPost, "/v1/payments", "create-payment", "Pay an intent, or find or create one and pay it")
	op.Parameters = []*huma.Param{keyParameter(aboutKey)}
	body, members := c.takes(PaymentRequest{})
	payment := c.schema(present.PaymentBody{})
	op.RequestBody = body
	op.Responses = c.tells(map[int]*huma.Response{
		201: c.good("Paid, authorized, or registered: the payer goes on at redirect_url", payment, answerHeaders...),
		200: c.good("The intent's live payment with the same parameters, in its current state", payment, answerHeaders...),
		202: c.good("Not known yet: repeat the same key, or look at Location",
			&huma.Schema{OneOf: []*huma.Schema{payment, c.schema(present.UnknownBody{})}}, answerHeaders...),
		402: c.good("Final: declined, with the acquirer's reason", payment, answerHeaders...),
		422: c.good("Final: failed or canceled, with the reason", payment, answerHeaders...),
	}, append(commands, problem.NotFound, problem.PaymentOpen, problem.AlreadyPaid, problem.PaymentSettling,
		problem.PaymentConflict, problem.IntentConflict, problem.IntentExpired, problem.AmountMismatch)...)
	return route{Operation: op, body: members, handle: d.createPayment}
}

func (d *door) routePayments() route {
	c := d.contract
	op := d.operation(http.MethodGet, "/v1/payments", "list-payments", "Find payments by one of their names")
	op.Parameters = queryParameters(paymentFilters)
	op.Responses = c.tells(map[int]*huma.Response{200: c.good("A page", c.list(c.schema(present.PaymentBody{})))})
	return route{Operation: op, list: true, handle: d.payments}
}

func (d *door) routePayment() route {
	c := d.contract
	op := d.operation(http.MethodGet, "/v1/payments/{id}", "get-payment", "Look at a payment")
	op.Parameters = []*huma.Param{pathID("pay_")}
	op.Responses = c.tells(map[int]*huma.Response{200: c.good("The payment", c.schema(present.PaymentBody{}))}, problem.NotFound)
	return route{Operation: op, handle: d.payment}
}
