package fakeslack

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
)

// maxPage is the largest page of any list.
const maxPage = 1000

// readable finds the channel of a reading call; the caller holds mu. right is "read"
// or "history".
func (s *Slack) readable(p params, right string) (Channel, map[string]any) {
	// Without a right of either kind Slack does not look for the channel.
	if refusal := s.lack("channels:" + right); refusal != nil && s.lack("groups:"+right) != nil {
		return Channel{}, refusal
	}
	c, ok := s.channel(p.Get("channel"), false)
	if !ok || c.Private && c.NotMember {
		return Channel{}, refuse("channel_not_found")
	}
	scope := "channels:" + right
	if c.Private {
		scope = "groups:" + right
	}
	if refusal := s.lack(scope); refusal != nil {
		return Channel{}, refusal
	}
	if right == "history" && c.NotMember {
		return Channel{}, refuse("not_in_channel")
	}
	return c, nil
}

func (c Channel) view() map[string]any {
	return map[string]any{
		"id": c.ID, "name": c.Name, "name_normalized": c.Name, "created": 1_600_000_000,
		"is_channel": !c.Private, "is_group": c.Private, "is_private": c.Private,
		"is_archived": c.Archived, "is_member": !c.NotMember, "is_general": false,
	}
}

func (s *Slack) info(p params) map[string]any {
	c, refusal := s.readable(p, "read")
	if refusal != nil {
		return refusal
	}
	return accept(map[string]any{"channel": c.view()})
}

func (s *Slack) list(p params) map[string]any {
	types := strings.Split(p.Get("types"), ",")
	if p.Get("types") == "" {
		types = []string{"public_channel"}
	}
	public, private := slices.Contains(types, "public_channel"), slices.Contains(types, "private_channel")
	if refusal := s.lack("channels:read"); public && refusal != nil {
		return refusal
	}
	if refusal := s.lack("groups:read"); private && refusal != nil {
		return refusal
	}
	noArchived, _ := p.flag("exclude_archived")
	var found []Channel
	for _, c := range s.channels {
		switch {
		case c.Archived && noArchived:
		case c.Private && private && !c.NotMember, !c.Private && public:
			found = append(found, c)
		}
	}
	from, size, refusal := page(p, 100)
	if refusal != nil {
		return refusal
	}
	from = min(from, len(found))
	to := min(from+size, len(found))
	views := []map[string]any{}
	for _, c := range found[from:to] {
		views = append(views, c.view())
	}
	return accept(map[string]any{"channels": views, "response_metadata": nextCursor(to, len(found))})
}

func (s *Slack) history(p params) map[string]any {
	c, refusal := s.readable(p, "history")
	if refusal != nil {
		return refusal
	}
	var found []*Message
	for _, m := range slices.Backward(s.messages) {
		shown := m.ThreadTS == "" || m.Broadcast
		gone := m.Deleted && len(s.replies(c.ID, m.TS)) == 0
		if m.Channel == c.ID && shown && !gone && within(m.TS, p) {
			found = append(found, m)
		}
	}
	return s.messagePage(p, 100, found)
}

func (s *Slack) threadReplies(p params) map[string]any {
	c, refusal := s.readable(p, "history")
	if refusal != nil {
		return refusal
	}
	root, ok := s.thread(c.ID, p.Get("ts"))
	if !ok || root == "" {
		return refuse("thread_not_found")
	}
	// The first message comes along whatever the bounds are.
	found := []*Message{s.find(c.ID, root)}
	for _, m := range s.replies(c.ID, root) {
		if within(m.TS, p) {
			found = append(found, m)
		}
	}
	return s.messagePage(p, maxPage, found)
}

// within reports whether a timestamp is inside of the call's bounds, which are inside
// only if inclusive. Timestamps have one length, so they sort as text.
func within(ts string, p params) bool {
	inclusive, _ := p.flag("inclusive")
	oldest, latest := p.Get("oldest"), p.Get("latest")
	after := oldest == "" || ts > pad(oldest) || inclusive && ts == pad(oldest)
	before := latest == "" || ts < pad(latest) || inclusive && ts == pad(latest)
	return after && before
}

// pad gives a bound the form of a timestamp: "1700000000" and "1700000000.5" are
// bounds too, and "0" is one that is before all.
func pad(bound string) string {
	whole, fraction, _ := strings.Cut(bound, ".")
	if len(whole) < 10 {
		whole = strings.Repeat("0", 10-len(whole)) + whole
	}
	if len(fraction) < 6 {
		fraction += strings.Repeat("0", 6-len(fraction))
	}
	return whole + "." + fraction
}

// messagePage answers with one page; the caller holds mu.
func (s *Slack) messagePage(p params, usual int, found []*Message) map[string]any {
	from, size, refusal := page(p, usual)
	if refusal != nil {
		return refusal
	}
	metadata, _ := p.flag("include_all_metadata")
	from = min(from, len(found))
	to := min(from+size, len(found))
	views := []map[string]any{}
	for _, m := range found[from:to] {
		views = append(views, s.view(m, metadata))
	}
	return accept(map[string]any{
		"messages": views, "has_more": to < len(found), "response_metadata": nextCursor(to, len(found)),
	})
}

// cursorPrefix is the prefix of a decoded cursor.
const cursorPrefix = "next:"

// page reads where a page begins and how long it may be.
func page(p params, usual int) (from, size int, refusal map[string]any) {
	size = usual
	if text := p.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxPage {
			return 0, 0, refuse("invalid_limit")
		}
		size = n
	}
	if text := p.Get("cursor"); text != "" {
		raw, err := base64.StdEncoding.DecodeString(text)
		number, ok := strings.CutPrefix(string(raw), cursorPrefix)
		n, notNumber := strconv.Atoi(number)
		if err != nil || !ok || notNumber != nil || n < 0 {
			return 0, 0, refuse("invalid_cursor")
		}
		from = n
	}
	return from, size, nil
}

// nextCursor is empty at the end.
func nextCursor(to, total int) map[string]any {
	cursor := ""
	if to < total {
		cursor = base64.StdEncoding.EncodeToString([]byte(cursorPrefix + strconv.Itoa(to)))
	}
	return map[string]any{"next_cursor": cursor}
}
