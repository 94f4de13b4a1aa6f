# `make demo` and `make test` install what the system lacks, need no configuration and leave nothing running.

CARGO ?= cargo

.DEFAULT_GOAL := help
.PHONY: help demo test sim zoo dev bench bench-scale bench-peers figures forecast pace faults outages torture distance judges slow compat openapi alarms screenshots page-cost fuzz lint package package-test compose-test servers

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: servers ## See three nodes hold a bank's limits through a crash and a flush, in about a minute
	$(CARGO) run --release --locked -- demo

test: ## Run every test, on private servers that are thrown away
	@tools/install-servers browser
	$(CARGO) test --workspace --locked

sim: servers ## Play seeds of the simulation: SEEDS=1000, SECONDS=60, or SEED=7 for one and its trace
	$(CARGO) test --release --locked --test sim no_seed_breaks_a_property -- --nocapture

zoo: servers ## Put known mistakes into the statements, the scripts and the order of things, and see each caught
	$(CARGO) test --release --locked --test sim every_known_mistake_is_caught -- --nocapture --include-ignored

dev: servers ## Run a node with its own Postgres, Redis and pretend bank; Ctrl-C ends it
	$(CARGO) run --locked -- dev

bench: servers ## Measure speed and cost into docs/bench.md, beside what was committed (REPEAT=3, ONLY=drain)
	$(CARGO) bench --locked --bench bench $(if $(ONLY),-- $(ONLY))

bench-scale: servers ## Measure 1,000 channels that wait, 10,000 that idle, and 10,000,000 rows, in about half an hour
	$(CARGO) bench --locked --bench bench -- waiting backlog

bench-peers: servers ## Measure the drain beside apalis-postgres, graphile-worker, pg-boss and BullMQ (needs npm)
	$(CARGO) bench --locked --bench bench -- peers

forecast: servers ## Measure forecasts beside what happened, in two minutes
	$(CARGO) test --locked --test it -- --ignored expected_times_beside_what_happened --nocapture

figures: servers ## Measure what the documents quote of crashes, reloads and many nodes
	$(CARGO) bench --locked --bench figures

faults: servers ## Break Redis, its clock and the nodes' files under load, and let the bank judge, in about ten minutes
	$(CARGO) bench --locked --bench faults $(if $(ONLY),-- $(ONLY))

outages: servers ## Take each server away for 0.5 s to 10 min, from all nodes or one (LENGTHS=, ONLY=), in about 18 minutes
	$(CARGO) bench --locked --bench outages $(if $(ONLY),-- $(ONLY))

distance: servers ## Measure what a distant bank costs each limiter, over TLS (SECONDS=, ONLY="paced 1/s 60ms", ONLY="1 20" for nodes), in about fifteen minutes
	$(CARGO) bench --locked --bench distance

judges: ## Send at exactly the limit of nginx and HAProxy and count what they refuse (SECONDS=, ONLY=), in about 22 minutes
	@tools/install-servers judges
	$(CARGO) bench --locked --bench judges

openapi: servers ## Let Schemathesis send requests to every route, and compare the answers with /v1/openapi.json (EXAMPLES=)
	@tools/schemathesis

alarms: servers ## Compare what each alarm finds with Prometheus's own promtool, which is downloaded (19 MB)
	PROMTOOL=$$(tools/promtool) $(CARGO) test --locked --test it alarms::

compat: ## Try versions of Postgres and Redis, poolers, web servers and systemd, into docs/compatibility.md (ONLY=)
	@tools/install-servers judges
	$(CARGO) bench --locked --bench compat

slow: ## Let 2,000 slow callers and slowhttptest attack a node, and measure its probes, its memory and a channel's pace (SECONDS=)
	@tools/install-servers slow
	$(CARGO) test --locked --release --test it slow_thousands -- --ignored --nocapture --test-threads=1

torture: servers ## Break everything at random under load (SECONDS=, SEED=, RATE=, CALM=), then compare all ledgers
	$(CARGO) bench --locked --bench torture

pace: servers ## Saturate every limiter at the bank's door and draw docs/pace.svg, in about a quarter of an hour
	$(CARGO) bench --locked --bench pace

fuzz: ## Search for inputs that break a property: TARGET=draft SECONDS=60, or each target in turn
	@SECONDS_EACH=$(if $(SECONDS),$(SECONDS),60) tools/fuzz

package: ## Build the program as it is shipped, as a Debian package and as an archive, into target/package
	@tools/package

compose-test: ## Build the images, start docker-compose.yml in a container engine of its own, and try what it promises
	@tools/compose-test

package-test: package ## Install, run, upgrade and purge that Debian package in a clean root; lintian checks it where it is installed
	@tools/package-test "$$(ls -t target/package/*.deb | head -1)"

screenshots: ## Take the pictures of the page for README.md and docs/desk.md, in headless Chromium
	@tools/install-servers browser
	$(CARGO) test --locked --test it the_pictures_of_the_documentation_are_made -- --ignored

page-cost: servers ## Measure what ten viewers of a thousand channels cost a node, in about a minute and a half
	$(CARGO) test --locked --release --test it ten_thousand_channels_and_a_hundred_thousand_in_review_stay_quick -- --ignored --nocapture
	$(CARGO) test --locked --release --test it ten_viewers_of_a_thousand_channels_change_no_pace -- --ignored --nocapture

lint: ## Check the words, the dependencies, the format and the lints
	@tools/typos
	@tools/deny
	$(CARGO) fmt --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --no-default-features --locked -- -D warnings

servers: # The programs of Postgres and Redis
	@tools/install-servers
