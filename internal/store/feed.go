package store

import (
	"context"

	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/store/dbgen"
	"github.com/jackc/pgx/v5/pgtype"
)

// FeedFilter names events; members that are set must all hold, none: every event of the merchant.
type FeedFilter struct {
	Intent   id.ID
	Customer string
	Type     string
}

// FeedPage is a part of a merchant's feed: the exact bytes of events in the order of their positions.
type FeedPage struct {
	Events [][]byte
	More   bool // further events were there already
	// Next is the position up to which everything was looked at, whether the filter took it or not.
	Next int64
	// Head is the highest position that was given.
	Head int64
}

// feedRow is what the statements of the feed give.
type feedRow struct {
	position int64
	payload  []byte
}

// Feed reads up to limit events behind a position. Positions are given under the lock of the feed's head, and rows and head are
// read in one snapshot: whoever goes on from Next has missed nothing (PROTOCOL V2, DESIGN data rule 8).
func (s *Store) Feed(ctx context.Context, merchant id.ID, f FeedFilter, after int64, limit int) (page FeedPage, err error) {
	err = s.look(ctx, "feed", func(ctx context.Context, q *dbgen.Queries) error {
		page = FeedPage{}
		head, err := q.FeedHead(ctx, dbID(merchant))
		if _, err = none(err); err != nil {
			return err
		}
		rows, err := feedRows(ctx, q, dbID(merchant), f, after, int32(limit)+1)
		if err != nil {
			return err
		}
		page.Head, page.Next = head, max(head, after)
		if len(rows) > limit {
			rows, page.More = rows[:limit], true
			page.Next = rows[limit-1].position
		}
		page.Events = column(rows, func(r feedRow) []byte { return r.payload })
		return nil
	})
	return page, err
}

func feedRows(ctx context.Context, q *dbgen.Queries, merchant pgtype.UUID, f FeedFilter, after int64, limit int32) ([]feedRow, error) {
	switch {
	case !f.Intent.IsZero():
		rows, err := q.FeedOfSubject(ctx, dbgen.FeedOfSubjectParams{MerchantID: merchant, SubjectID: dbID(f.Intent), After: after,
			Type: f.Type, Customer: f.Customer, MaxRows: limit})
		return column(rows, func(r dbgen.FeedOfSubjectRow) feedRow { return feedRow{r.Position, r.Payload} }), err
	case f.Customer != "":
		rows, err := q.FeedOfCustomer(ctx, dbgen.FeedOfCustomerParams{MerchantID: merchant, Customer: f.Customer, After: after, Type: f.Type, MaxRows: limit})
		return column(rows, func(r dbgen.FeedOfCustomerRow) feedRow { return feedRow{r.Position, r.Payload} }), err
	case f.Type != "":
		rows, err := q.FeedOfType(ctx, dbgen.FeedOfTypeParams{MerchantID: merchant, Type: f.Type, After: after, MaxRows: limit})
		return column(rows, func(r dbgen.FeedOfTypeRow) feedRow { return feedRow{r.Position, r.Payload} }), err
	}
	rows, err := q.Feed(ctx, dbgen.FeedParams{MerchantID: merchant, After: after, MaxRows: limit})
	return column(rows, func(r dbgen.FeedRow) feedRow { return feedRow{r.Position, r.Payload} }), err
}
