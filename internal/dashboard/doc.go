// Package dashboard is what people look at in a browser: breakers, jobs, incidents and
// destinations as they are now, and the actions on them.
//
// Pages are rendered on the server from what Redis holds; nothing comes from elsewhere,
// and all of it can be read without script. The one script that there is fetches the
// page that is shown again when something has happened, of which it hears through /live,
// and puts what has changed in its place.
//
// What is read is kept for a second for all viewers of the process, so that many of them
// cost Redis what one costs, and for as long as Redis is away: then the last of it is
// shown and said to be old.
package dashboard
