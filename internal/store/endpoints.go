package store

import (
	"context"
	"errors"
	"time"

	"github.com/hapaxpay/hapax/internal/flow"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/payment"
	view "github.com/hapaxpay/hapax/internal/present"
	"github.com/hapaxpay/hapax/internal/store/dbgen"
	"github.com/jackc/pgx/v5/pgtype"
)

// endpointTx implements flow.EndpointTx.
type endpointTx struct{ *tx }

// Endpoints implements flow.Tx.
func (t *tx) Endpoints() flow.EndpointTx { return endpointTx{t} }

func domainEndpoint(w dbgen.WebhookEndpoint) payment.Endpoint {
	return payment.Endpoint{Merchant: domainID(w.MerchantID), ID: domainID(w.ID), URL: w.Url, Description: w.Description,
		Types: column(w.Types, func(s string) payment.EventType { return payment.EventType(s) }), Enabled: w.Enabled,
		DisabledWhy: payment.DisabledWhy(w.DisabledWhy), FailingSince: domainAt(w.FailingSince), KeySeed: w.KeySeed,
		EventVersion: w.EventVersion, Version: w.Version, CreatedAt: domainAt(w.CreatedAt), UpdatedAt: domainAt(w.UpdatedAt)}
}

func domainSecret(s dbgen.WebhookSecret) payment.EndpointSecret {
	return payment.EndpointSecret{Merchant: domainID(s.MerchantID), Endpoint: domainID(s.EndpointID), Ordinal: int(s.Ordinal),
		Sealed: s.Sealed, CreatedAt: domainAt(s.CreatedAt), ExpiresAt: domainAt(s.ExpiresAt)}
}

func typeNames(types []payment.EventType) []string {
	return column(types, func(t payment.EventType) string { return string(t) })
}

// LockFeed implements flow.EndpointTx.
func (t endpointTx) LockFeed(ctx context.Context, merchant id.ID) error {
	err := t.q.InsertFeedHeads(ctx, []pgtype.UUID{dbID(merchant)})
	if err == nil {
		err = t.q.LockFeed(ctx, dbID(merchant))
	}
	return t.fail("lock feed", err)
}

// EndpointsOf implements flow.EndpointTx.
func (t endpointTx) EndpointsOf(ctx context.Context, merchant id.ID) ([]payment.Endpoint, error) {
	rows, err := t.q.EndpointsOf(ctx, dbID(merchant))
	return column(rows, domainEndpoint), t.fail("endpoints", err)
}

// LockEndpoint implements flow.EndpointTx.
func (t endpointTx) LockEndpoint(ctx context.Context, row flow.Row) (payment.Endpoint, time.Time, bool, error) {
	found, err := t.q.LockEndpoint(ctx, dbgen.LockEndpointParams{MerchantID: dbID(row.Merchant), ID: dbID(row.ID)})
	ok, err := none(err)
	return domainEndpoint(found.WebhookEndpoint), domainAt(found.Now), ok, t.fail("lock endpoint", err)
}

// InsertEndpoint implements flow.EndpointTx.
func (t endpointTx) InsertEndpoint(ctx context.Context, e payment.Endpoint) error {
	return t.fail("insert endpoint", t.q.InsertEndpoint(ctx, dbgen.InsertEndpointParams{MerchantID: dbID(e.Merchant), ID: dbID(e.ID), Url: e.URL,
		Description: e.Description, Types: typeNames(e.Types), KeySeed: e.KeySeed, EventVersion: e.EventVersion}))
}

// SaveEndpoint implements flow.EndpointTx.
func (t endpointTx) SaveEndpoint(ctx context.Context, e payment.Endpoint, changed bool) error {
	n, err := t.q.SaveEndpoint(ctx, dbgen.SaveEndpointParams{MerchantID: dbID(e.Merchant), ID: dbID(e.ID), Url: e.URL, Description: e.Description,
		Types: typeNames(e.Types), Enabled: e.Enabled, DisabledWhy: string(e.DisabledWhy), FailingSince: dbTime(e.FailingSince),
		EventVersion: e.EventVersion, Version: e.Version, Changed: changed})
	if err == nil {
		err = affected(n, 1)
	}
	return t.fail("save endpoint", err)
}

// LiveSecrets implements flow.EndpointTx.
func (t endpointTx) LiveSecrets(ctx context.Context, endpoint flow.Row) ([]payment.EndpointSecret, error) {
	rows, err := t.q.LiveSecrets(ctx, dbgen.LiveSecretsParams{MerchantID: dbID(endpoint.Merchant), EndpointID: dbID(endpoint.ID)})
	if err == nil && len(rows) == 0 {
		err = errors.New("an endpoint without a secret")
	}
	return column(rows, domainSecret), t.fail("secrets", err)
}

// AddSecret implements flow.EndpointTx.
func (t endpointTx) AddSecret(ctx context.Context, s payment.EndpointSecret, retire time.Time) error {
	merchant, endpoint := dbID(s.Merchant), dbID(s.Endpoint)
	_, err := t.q.RetireSecrets(ctx, dbgen.RetireSecretsParams{MerchantID: merchant, EndpointID: endpoint, ExpiresAt: dbTime(retire)})
	if err == nil {
		_, err = t.q.DeleteDeadSecrets(ctx, dbgen.DeleteDeadSecretsParams{MerchantID: merchant, EndpointID: endpoint})
	}
	if err == nil {
		err = t.q.InsertSecret(ctx, dbgen.InsertSecretParams{MerchantID: merchant, EndpointID: endpoint, Ordinal: int32(s.Ordinal), Sealed: s.Sealed})
	}
	return t.fail("add secret", err)
}

// SendAgain implements flow.EndpointTx.
func (t endpointTx) SendAgain(ctx context.Context, endpoint flow.Row, event id.ID) (bool, error) {
	merchant, sink := dbID(endpoint.Merchant), endpoint.ID.String()
	f, err := t.q.NumberedEvent(ctx, dbgen.NumberedEventParams{MerchantID: merchant, EventID: dbID(event)})
	found, err := none(err)
	if err != nil || !found {
		return false, t.fail("numbered event", err)
	}
	n, err := t.q.SendFirst(ctx, dbgen.SendFirstParams{MerchantID: merchant, Sink: sink, EventID: f.EventID, SubjectID: f.SubjectID, Position: f.Position})
	if err == nil && n == 0 {
		n, err = t.q.SendAgain(ctx, dbgen.SendAgainParams{MerchantID: merchant, Sink: sink, EventID: f.EventID})
	}
	if err == nil {
		err = affected(n, 1)
	}
	return true, t.fail("send again", err)
}

// SendFailed implements flow.EndpointTx.
func (t endpointTx) SendFailed(ctx context.Context, e payment.Endpoint, since time.Time, limit int) (int, bool, error) {
	merchant, sink, least := dbID(e.Merchant), e.ID.String(), dbID(id.New(since, [10]byte{}))
	again, err := t.q.SendFailedAgain(ctx, dbgen.SendFailedAgainParams{MerchantID: merchant, Sink: sink, Since: least, MaxRows: int32(limit)})
	n := int(again)
	if err == nil && n < limit {
		var missed int64
		missed, err = t.q.SendMissed(ctx, dbgen.SendMissedParams{MerchantID: merchant, Sink: sink, Since: least, Types: typeNames(e.Types), MaxRows: int32(limit - n)})
		n += int(missed)
	}
	return n, n >= limit, t.fail("send failed", err)
}

// EndpointDoneBy implements flow.EndpointTx.
func (t endpointTx) EndpointDoneBy(ctx context.Context, ref flow.CommandRef) (flow.EndpointDone, bool, error) {
	row, err := t.q.EndpointCommand(ctx, dbgen.EndpointCommandParams{MerchantID: dbID(ref.Merchant), Kind: ref.Kind, IdempotencyKey: ref.Key})
	found, err := none(err)
	return flow.EndpointDone{Merchant: domainID(row.MerchantID), Endpoint: domainID(row.EndpointID),
		By:     domainCommand(row.Kind, row.IdempotencyKey, row.Fingerprint, row.FingerprintVersion),
		Status: int(row.AnsweredStatus), Event: domainID(row.EventID), Sends: int(row.Sends), More: row.More}, found, t.fail("endpoint command", err)
}

// InsertEndpointDone implements flow.EndpointTx.
func (t endpointTx) InsertEndpointDone(ctx context.Context, d flow.EndpointDone) error {
	return t.fail("insert endpoint command", t.q.InsertEndpointCommand(ctx, dbgen.InsertEndpointCommandParams{MerchantID: dbID(d.Merchant),
		Kind: d.By.Kind, IdempotencyKey: d.By.Key, Fingerprint: d.By.Fingerprint[:], FingerprintVersion: int16(d.By.FPVersion),
		EndpointID: dbID(d.Endpoint), AnsweredStatus: int16(d.Status), EventID: dbID(d.Event), Sends: int32(d.Sends), More: d.More}))
}

// Endpoint reads one endpoint and the time; false: the merchant has none of this id.
func (s *Store) Endpoint(ctx context.Context, merchant, endpoint id.ID) (e payment.Endpoint, now time.Time, found bool, err error) {
	err = s.look(ctx, "endpoint", func(ctx context.Context, q *dbgen.Queries) error {
		row, err := q.EndpointByID(ctx, dbgen.EndpointByIDParams{MerchantID: dbID(merchant), ID: dbID(endpoint)})
		e, now = domainEndpoint(row.WebhookEndpoint), domainAt(row.Now)
		found, err = none(err)
		return err
	})
	return e, now, found, err
}

// Endpoints reads the merchant's endpoints, the newest first.
func (s *Store) Endpoints(ctx context.Context, merchant id.ID) (all []payment.Endpoint, err error) {
	err = s.look(ctx, "endpoints", func(ctx context.Context, q *dbgen.Queries) error {
		rows, err := q.EndpointsOf(ctx, dbID(merchant))
		all = column(rows, domainEndpoint)
		return err
	})
	return all, err
}

// EndpointSecrets reads the sealed secrets that are good now, the newest first.
func (s *Store) EndpointSecrets(ctx context.Context, merchant, endpoint id.ID) (all []payment.EndpointSecret, err error) {
	err = s.look(ctx, "endpoint secrets", func(ctx context.Context, q *dbgen.Queries) error {
		rows, err := q.LiveSecrets(ctx, dbgen.LiveSecretsParams{MerchantID: dbID(merchant), EndpointID: dbID(endpoint)})
		all = column(rows, domainSecret)
		return err
	})
	return all, err
}

// DeliveryFilter names deliveries; members that are set must all hold.
type DeliveryFilter struct {
	State string
	Event id.ID
}

// triesShown bounds the tries that are read of one delivery.
const triesShown = 20

// Deliveries reads a page of what became of events at an endpoint, with their last tries.
func (s *Store) Deliveries(ctx context.Context, merchant, endpoint id.ID, f DeliveryFilter, page Page) (all []view.Delivery, err error) {
	err = s.look(ctx, "deliveries", func(ctx context.Context, q *dbgen.Queries) error {
		rows, err := deliveryRows(ctx, q, dbID(merchant), endpoint.String(), f, page)
		if err != nil || len(rows) == 0 {
			all = nil
			return err
		}
		tries, err := q.AttemptsOf(ctx, dbgen.AttemptsOfParams{MerchantID: dbID(merchant), Sink: endpoint.String(), PerEvent: triesShown,
			Events: column(rows, func(d dbgen.DeliveriesOfRow) pgtype.UUID { return d.EventID })})
		of := map[pgtype.UUID][]view.Try{}
		for _, a := range tries {
			of[a.EventID] = append(of[a.EventID], view.Try{ID: domainID(a.ID), Attempt: int(a.Attempt), URL: a.Url, Status: int(a.Status.Int16),
				Answer: a.Answer.String, Error: a.Error.String, Duration: time.Duration(a.DurationMs) * time.Millisecond, At: domainAt(a.CreatedAt)})
		}
		all = column(rows, func(d dbgen.DeliveriesOfRow) view.Delivery {
			return view.Delivery{Event: domainID(d.EventID), Type: d.Type, State: d.State, Error: d.Error.String, Attempts: int(d.Attempts),
				Resends: int(d.Resends), DueAt: domainAt(d.DueAt), CreatedAt: domainAt(d.CreatedAt), EndedAt: domainAt(d.EndedAt), Tries: of[d.EventID]}
		})
		return err
	})
	return all, err
}

func deliveryRows(ctx context.Context, q *dbgen.Queries, merchant pgtype.UUID, sink string, f DeliveryFilter, page Page) ([]dbgen.DeliveriesOfRow, error) {
	if f.Event.IsZero() {
		return q.DeliveriesOf(ctx, dbgen.DeliveriesOfParams{MerchantID: merchant, Sink: sink, Before: dbID(page.Before), State: f.State, MaxRows: int32(page.Limit)})
	}
	rows, err := q.DeliveryOf(ctx, dbgen.DeliveryOfParams{MerchantID: merchant, Sink: sink, EventID: dbID(f.Event), State: f.State})
	return column(rows, func(r dbgen.DeliveryOfRow) dbgen.DeliveriesOfRow { return dbgen.DeliveriesOfRow(r) }), err
}
