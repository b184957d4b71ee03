package store

// TrimAt is TrimEvents with bounds of its own.
var TrimAt = trim

// ChildrenReleased removes children from their parent.
var ChildrenReleased = childrenReleasedScript
