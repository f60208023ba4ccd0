package traj

import "context"

type idKey struct{}

// WithID carries a trajectory's id to whatever is called for it: tools that keep
// something for each trajectory, logs.
func WithID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, idKey{}, id)
}

// IDOf is the id of the trajectory that ctx belongs to; "" where it belongs to
// none.
func IDOf(ctx context.Context) string {
	id, _ := ctx.Value(idKey{}).(string)
	return id
}
