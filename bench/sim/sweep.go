package sim

import (
	"context"
	"sync"
)

// Sweep plays seeds first, first+1, ... on some workers and hands every result to each, in the order of the seeds. It
// ends early when ctx does.
func Sweep(ctx context.Context, first uint64, seeds, workers int, each func(Result)) {
	results := make([]chan Result, seeds)
	for i := range results {
		results[i] = make(chan Result, 1)
	}
	next := make(chan int)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for i := range next {
				results[i] <- Run(first+uint64(i), nil)
			}
		})
	}
	group.Go(func() {
		defer close(next)
		for i := range results {
			select {
			case next <- i:
			case <-ctx.Done():
				return
			}
		}
	})
	defer group.Wait()
	for _, r := range results {
		select {
		case result := <-r:
			each(result)
		case <-ctx.Done():
			return
		}
	}
}
