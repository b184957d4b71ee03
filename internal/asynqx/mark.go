package asynqx

// markCancel is the mark of a job whose call is to be cut.
const markCancel = "cancel"

// Mark tells the Server what is asked of a job that it may have in hand. A pause
// needs no word: it takes effect when the run ends.
func (c *Client) Mark(id, mark string) {
	if d := c.inHand.get(id); d != nil && mark == markCancel {
		d.cancel()
	}
}

func (d *Delivery) cancel() {
	d.mu.Lock()
	cut := d.cut
	d.cancelled = true
	d.mu.Unlock()
	if cut != nil {
		cut()
	}
}

// OnCancel has cut called when somebody cancels the job, once or more often. It
// returns false if that has happened: the call is not to be made.
func (d *Delivery) OnCancel(cut func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut = cut
	return !d.cancelled
}
