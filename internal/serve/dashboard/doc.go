// Package dashboard is the web interface: breakers, jobs, incidents and destinations as they
// are now, and the actions on them.
//
// Pages are rendered on the server from Redis, load nothing from elsewhere, and work without
// script. The one script fetches the page again after an event of /live and replaces the changed
// parts.
//
// Data is cached for a second for all viewers of the process, so that many viewers cost Redis as
// much as one. While Redis is unavailable pages show older data and its age.
package dashboard
