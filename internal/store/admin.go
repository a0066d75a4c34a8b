package store

import (
	"context"
	"errors"
	"time"

	"github.com/hapaxpay/hapax/internal/auth"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/store/dbgen"
	"github.com/jackc/pgx/v5"
)

// Merchant is a tenant. Test and live tenants of one shop are two, paired.
type Merchant struct {
	ID        id.ID
	Name      string
	Mode      auth.Mode
	Pair      id.ID // the tenant of the other mode; zero: none
	RateLimit int   // requests per second; 0: the default
	CreatedAt time.Time
}

// CreateMerchant adds a tenant.
func (s *Store) CreateMerchant(ctx context.Context, m Merchant) error {
	return s.change(ctx, "create merchant", func(ctx context.Context, q *dbgen.Queries) error {
		return q.CreateMerchant(ctx, dbgen.CreateMerchantParams{MerchantID: dbID(m.ID), Name: m.Name, Mode: string(m.Mode),
			PairID: dbID(m.Pair), RateLimit: int32(m.RateLimit)})
	})
}

// Merchants reads all tenants, oldest first.
func (s *Store) Merchants(ctx context.Context) (merchants []Merchant, err error) {
	err = s.look(ctx, "merchants", func(ctx context.Context, q *dbgen.Queries) error {
		rows, err := q.Merchants(ctx)
		merchants = column(rows, func(m dbgen.Merchant) Merchant {
			return Merchant{ID: domainID(m.MerchantID), Name: m.Name, Mode: auth.Mode(m.Mode), Pair: domainID(m.PairID),
				RateLimit: int(m.RateLimit), CreatedAt: domainAt(m.CreatedAt)}
		})
		return err
	})
	return merchants, err
}

// APIKey is a stored key as people see it: never its text, nor its hash.
type APIKey struct {
	Merchant, ID                    id.ID
	Name                            string
	CreatedAt, ExpiresAt, RevokedAt time.Time
}

// AddAPIKey stores the hash of a new key.
func (s *Store) AddAPIKey(ctx context.Context, merchant, key id.ID, hash [32]byte, name string) error {
	return s.change(ctx, "add API key", func(ctx context.Context, q *dbgen.Queries) error {
		return q.AddAPIKey(ctx, dbgen.AddAPIKeyParams{MerchantID: dbID(merchant), KeyHash: hash[:], ID: dbID(key), Name: name})
	})
}

// ErrNoSuchKey says that the merchant has no such key that is not revoked.
var ErrNoSuchKey = errors.New("no such API key")

// RotateAPIKey stores a new key and lets the old one expire after the overlap, in one transaction. It fails with
// ErrNoSuchKey when there is no old one, and stores nothing then.
func (s *Store) RotateAPIKey(ctx context.Context, merchant, old, key id.ID, hash [32]byte, name string, overlap time.Duration) error {
	return s.change(ctx, "rotate API key", func(ctx context.Context, q *dbgen.Queries) error {
		n, err := q.ExpireAPIKey(ctx, dbgen.ExpireAPIKeyParams{OverlapUs: overlap.Microseconds(), MerchantID: dbID(merchant), ID: dbID(old)})
		if err != nil {
			return err
		}
		if n == 0 {
			return ErrNoSuchKey
		}
		return q.AddAPIKey(ctx, dbgen.AddAPIKeyParams{MerchantID: dbID(merchant), KeyHash: hash[:], ID: dbID(key), Name: name})
	})
}

// RevokeAPIKey ends a key at once. It fails with ErrNoSuchKey when there is none left to revoke.
func (s *Store) RevokeAPIKey(ctx context.Context, merchant, key id.ID) error {
	return s.change(ctx, "revoke API key", func(ctx context.Context, q *dbgen.Queries) error {
		n, err := q.RevokeAPIKey(ctx, dbgen.RevokeAPIKeyParams{MerchantID: dbID(merchant), ID: dbID(key)})
		if err == nil && n == 0 {
			return ErrNoSuchKey
		}
		return err
	})
}

// APIKeys lists the keys of a merchant, oldest first.
func (s *Store) APIKeys(ctx context.Context, merchant id.ID) (keys []APIKey, err error) {
	err = s.look(ctx, "API keys", func(ctx context.Context, q *dbgen.Queries) error {
		rows, err := q.APIKeys(ctx, dbID(merchant))
		keys = column(rows, func(k dbgen.ApiKey) APIKey {
			return APIKey{Merchant: domainID(k.MerchantID), ID: domainID(k.ID), Name: k.Name, CreatedAt: domainAt(k.CreatedAt),
				ExpiresAt: domainAt(k.ExpiresAt), RevokedAt: domainAt(k.RevokedAt)}
		})
		return err
	})
	return keys, err
}

var _ auth.Finder = (*Store)(nil)

// FindAPIKey implements auth.Finder, on the primary: a key that was just revoked must not live on in a replica.
func (s *Store) FindAPIKey(ctx context.Context, merchant id.ID, hash [32]byte) (key auth.Key, found bool, err error) {
	err = s.look(ctx, "find API key", func(ctx context.Context, q *dbgen.Queries) error {
		k, err := q.FindAPIKey(ctx, dbgen.FindAPIKeyParams{MerchantID: dbID(merchant), KeyHash: hash[:]})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		found = err == nil
		key = auth.Key{Merchant: merchant, ID: domainID(k.ID), Hash: hash, Mode: auth.Mode(k.Mode), RateLimit: int(k.RateLimit),
			ExpiresAt: domainAt(k.ExpiresAt), RevokedAt: domainAt(k.RevokedAt), ReadAt: domainAt(k.ReadAt)}
		return err
	})
	return key, found, err
}

// Backlog is what waits, for metrics (PROTOCOL section 15).
type Backlog struct {
	Due, InProgress, Unknown, OpenReviews     int64
	OldestDue, OldestUnknown, OldestReviewAge time.Duration

	// Changes to payments without a proven result: all refunds, all whose result is unknown, all compensations.
	OpenRefunds, UnknownChanges, OpenCompensations        int64
	OldestRefund, OldestUnknownChange, OldestCompensation time.Duration
	OpenDisputes                                          int64

	// Messages of acquirers that are not applied yet, wait for their payment, cannot be read.
	Messages, ParkedMessages, UnreadableMessages int64
	OldestMessage                                time.Duration

	Unnumbered       int64 // events without a place in the feed
	OldestUnnumbered time.Duration
	Deliveries       []SinkBacklog

	UnknownMails, UnsentMails int64
}

// SinkBacklog is what one kind of sink has not acknowledged: kafka, nats, mail, or endpoint for all of them together.
type SinkBacklog struct {
	Sink                        string
	Waiting, Failing, Abandoned int64 // Failing are those that wait after a failed try
	Oldest                      time.Duration
}

// Backlog counts what waits.
func (s *Store) Backlog(ctx context.Context) (b Backlog, err error) {
	err = s.look(ctx, "backlog", func(ctx context.Context, q *dbgen.Queries) error {
		row, err := q.Backlog(ctx)
		if err != nil {
			return err
		}
		reviews, err := q.ReviewBacklog(ctx)
		if err != nil {
			return err
		}
		changes, err := q.ChangeBacklog(ctx)
		b = Backlog{Due: row.Due, InProgress: row.InProgress, Unknown: row.Unknown, OpenReviews: reviews.Open,
			OldestDue: seconds(row.OldestDueSeconds), OldestUnknown: seconds(row.OldestUnknownSeconds), OldestReviewAge: seconds(reviews.OldestSeconds),
			OpenRefunds: changes.Refunds, UnknownChanges: changes.Unknown, OpenCompensations: changes.Compensations, OpenDisputes: changes.Disputes,
			OldestRefund: seconds(changes.OldestRefundSeconds), OldestUnknownChange: seconds(changes.OldestUnknownSeconds),
			OldestCompensation: seconds(changes.OldestCompensationSeconds)}
		if err != nil {
			return err
		}
		return newsBacklog(ctx, q, &b)
	})
	return b, err
}

// newsBacklog counts what the intake and the relay have still to do.
func newsBacklog(ctx context.Context, q *dbgen.Queries, b *Backlog) error {
	inbox, err := q.InboxBacklog(ctx)
	if err != nil {
		return err
	}
	b.Messages, b.ParkedMessages, b.UnreadableMessages, b.OldestMessage = inbox.Waiting, inbox.Parked, inbox.Unreadable, seconds(inbox.OldestSeconds)
	events, err := q.OutboxBacklog(ctx)
	if err != nil {
		return err
	}
	mails, err := q.MailBacklog(ctx, MailGivenUpAfter.Microseconds())
	if err != nil {
		return err
	}
	b.UnknownMails, b.UnsentMails = mails.Unknown, mails.NotSent
	sinks, err := q.DeliveryBacklog(ctx)
	b.Unnumbered, b.OldestUnnumbered = events.Unnumbered, seconds(events.OldestSeconds)
	if len(sinks) == 0 {
		return err
	}
	b.Deliveries = column(sinks, func(r dbgen.DeliveryBacklogRow) SinkBacklog {
		return SinkBacklog{Sink: r.Sink, Waiting: r.Waiting, Failing: r.Failing, Abandoned: r.Abandoned, Oldest: seconds(r.OldestSeconds)}
	})
	return err
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// PurgeExpired deletes up to limit completed operations whose retention is over, and says how many (PROTOCOL K8). What
// a command created keeps the command's identity for ever.
func (s *Store) PurgeExpired(ctx context.Context, limit int) (purged int, err error) {
	err = s.change(ctx, "purge", func(ctx context.Context, q *dbgen.Queries) error {
		n, err := q.PurgeOperations(ctx, int32(limit))
		purged = int(n)
		return err
	})
	return purged, err
}

// Facts are what the server says about itself, for doctor.
type Facts struct {
	ServerVersion, Role                string
	Fsync, FullPageWrites              bool
	SynchronousCommit, Standbys        string
	InRecovery, ReadOnly               bool
	MaxConnections                     int
	SchemaVersion, LatestSchemaVersion int
	PoolMode                           PoolMode
	Now                                time.Time // the server's clock, to be compared with ours
}

// Examine asks a server about itself that Open may refuse: that is when a doctor is called. It fails with ErrNoSchema
// where nothing was migrated yet.
func Examine(ctx context.Context, cfg Config) (f Facts, err error) {
	s, err := connect(ctx, cfg)
	if err != nil {
		return f, err
	}
	defer s.Close()
	if f, err = s.Facts(ctx); isCode(err, undefinedTable) {
		err = ErrNoSchema
	}
	return f, err
}

// Facts reads them.
func (s *Store) Facts(ctx context.Context) (f Facts, err error) {
	err = s.change(ctx, "facts", func(ctx context.Context, q *dbgen.Queries) error {
		row, err := q.Facts(ctx)
		f = Facts{ServerVersion: row.ServerVersion, Role: row.Role, Fsync: row.Fsync == "on", FullPageWrites: row.FullPageWrites == "on",
			SynchronousCommit: row.SynchronousCommit, Standbys: row.SynchronousStandbys, InRecovery: row.InRecovery,
			ReadOnly: row.ReadOnly == "on", MaxConnections: int(row.MaxConnections), SchemaVersion: int(row.SchemaVersion),
			LatestSchemaVersion: LatestVersion(), PoolMode: s.cfg.PoolMode, Now: domainAt(row.Now)}
		return err
	})
	return f, err
}
