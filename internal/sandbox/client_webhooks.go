package sandbox

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// SetWebhooks replaces the settings for messages: where they go, what signs
// them and what goes wrong with them. Begin with WebhooksTo.
func (c *Client) SetWebhooks(ctx context.Context, to Webhooks) error {
	return c.call(ctx, http.MethodPut, "/control/webhooks", to, nil)
}

// Webhooks returns the settings in force, without secrets.
func (c *Client) Webhooks(ctx context.Context) (Webhooks, error) {
	var answer webhooksAnswer
	err := c.call(ctx, http.MethodGet, "/control/webhooks", nil, &answer)
	return answer.Webhooks, err
}

// Messages returns the messages about charges and pages with the reference,
// all for an empty one, oldest first.
func (c *Client) Messages(ctx context.Context, reference string) ([]Message, error) {
	var answer webhooksAnswer
	err := c.call(ctx, http.MethodGet, "/control/webhooks?reference="+url.QueryEscape(reference), nil, &answer)
	return answer.Messages, err
}

// WaitMessages returns the messages with the reference, all for an empty one,
// once n of them or more are in the state; an empty state is any. It ends with
// ctx only.
func (c *Client) WaitMessages(ctx context.Context, reference, state string, n int) ([]Message, error) {
	path := fmt.Sprintf("/control/webhooks?reference=%s&state=%s&at_least=%d&wait_ms=%d",
		url.QueryEscape(reference), url.QueryEscape(state), n, maxPoll/time.Millisecond)
	for {
		var answer webhooksAnswer
		if err := c.call(ctx, http.MethodGet, path, nil, &answer); err != nil {
			return nil, fmt.Errorf("wait for %d messages %s: %w", n, state, err)
		}
		if countState(answer.Messages, state) >= n {
			return answer.Messages, nil
		}
	}
}

// SendMessage sends a message once, now, whatever its state, and returns what
// the receiver answered.
func (c *Client) SendMessage(ctx context.Context, id string) (Sent, error) {
	var answer Sent
	err := c.call(ctx, http.MethodPost, "/control/webhooks/"+url.PathEscape(id)+"/send", nil, &answer)
	return answer, err
}
