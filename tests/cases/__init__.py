"""Every situation that a checkpoint tool must survive, each under the same five invariants (see `harness`)."""
