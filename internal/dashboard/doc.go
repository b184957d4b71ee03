// Package dashboard is the web interface: breakers, jobs, incidents and destinations as they
// are now, and the actions on them.
//
// Pages are rendered on the server from Redis, load nothing from elsewhere, and work without
// script. The one script fetches the page again after an event, which it gets through /live,
// and replaces what has changed.
//
// Data is cached for a second for all viewers of the process, so that many cost Redis as much
// as one, and while Redis is away: then the page shows its age.
package dashboard
