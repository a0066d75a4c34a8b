package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/hapaxpay/hapax/internal/httpapi"
	"github.com/hapaxpay/hapax/internal/id"
	"github.com/hapaxpay/hapax/internal/timeline"
)

type timelineCmd struct {
	Query    string `arg:"" help:"An id of intent, payment, operation, event, review or request; a client reference; an acquirer's reference; an idempotency key."`
	Merchant string `help:"Look at one tenant only: mer_…, or its name. Default: at all of them."`
}

// Run tells the stories that the query belongs to; exit 1 when there is none.
func (c timelineCmd) Run(t *tool) error {
	_, service, done, err := t.database()
	if err != nil {
		return err
	}
	defer done()
	var only id.ID
	if c.Merchant != "" {
		if only, err = c.tenant(t, service); err != nil {
			return err
		}
	}
	stories, err := t.stories(service, c.Query, only)
	if err != nil {
		return err
	}
	text := strings.TrimSuffix(timeline.Text(stories), "\n")
	if len(stories) == 0 {
		text = fmt.Sprintf("nothing is known of %q", c.Query)
	}
	if t.json {
		_, err = fmt.Fprintf(t.out, "%s\n", timeline.JSON(stories))
	} else {
		_, err = fmt.Fprintln(t.out, text)
	}
	if err == nil && len(stories) == 0 {
		return errFound
	}
	return err
}

func (c timelineCmd) tenant(t *tool, url string) (id.ID, error) {
	s, err := t.open(url)
	if err != nil {
		return id.ID{}, err
	}
	defer s.Close()
	m, err := ofMerchant{c.Merchant}.find(t, s)
	return m.ID, err
}

// stories finds by the query as it stands, and where that is nothing and the query is a key in the quotes in which
// clients send it, by its content.
func (t *tool) stories(url, query string, only id.ID) ([]timeline.Story, error) {
	pool, err := t.pool(url)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	found, err := timeline.Find(t.ctx, pool, query, only)
	if err != nil || len(found) > 0 {
		return found, err
	}
	key, refused := httpapi.ParseKey(query)
	if refused != nil || key == query {
		return nil, nil
	}
	return timeline.Find(t.ctx, pool, key, only)
}

// linesOf gives the lines of stories as timeline --json prints them.
func linesOf(stories []timeline.Story) (json.RawMessage, error) {
	var told struct {
		Lines json.RawMessage `json:"lines"`
	}
	err := json.Unmarshal(timeline.JSON(stories), &told)
	return told.Lines, err
}
