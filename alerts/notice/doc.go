// Package notice is what alerts and its notifiers share: a [Notice] is a message as data,
// a [Notifier] renders and sends it. Each notifier has a folder of its own beside this one.
//
// A notifier for another service implements [Notifier]. It renders Title, Summary and Body
// of a notice, which hold text of others unescaped, in the service's markup; [Text.Plain]
// does so for services without markup. It is registered in alerts.Options.Notifiers. If the
// service can look for and change what was sent, the notifier implements [Editor] too.
package notice
