# Targets call the scripts in hack/. Start with `make demo` and `make test`.
.DEFAULT_GOAL := help
SHELL := bash
MAKEFLAGS += --no-print-directory

.PHONY: help docs docs-test docs-pictures recordings demo test test-all check unit rules server integration faults properties compat compat-triton soak e2e lint golden generate serve bench corpus lock sbom audit release cluster monitoring clean purge venv

help: ## Show this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1	/p' Makefile | while IFS='	' read -r name text; do printf '  make %-13s %s\n' "$$name" "$$text"; done

demo: ## Create a cluster, install the operator, serve a detector and detect objects in a picture
	@hack/demo.sh
test: ## Show that the product works: pure code, real Prometheus, Triton and API server, one way through kind
	@hack/test.sh test
test-all: ## Run every test, or some parts: make test-all PARTS="faults operations"
	@hack/test.sh $(or $(PARTS),test-all)
check: lint ## Before a push: lint, the generated files, pure code and golden files
	@TEST_WORKERS=$${TEST_WORKERS:-5} hack/test.sh unit
unit: ## Test pure code and golden files
	@hack/test.sh unit
rules: ## Test the Prometheus rules and the dashboards' queries against a real Prometheus
	@hack/test.sh rules
server: ## Test the sample images and the operator's programs with a real Triton in Docker
	@hack/test.sh images server
integration: ## Test the operator against a real API server
	@hack/test.sh security integration
faults: ## Test the operator under faults: killed processes, failing requests, network outages
	@hack/test.sh faults
properties: ## Test generated bad input against a real API server
	@hack/test.sh properties
compat: ## Test the operator on the oldest and the newest Kubernetes, or on others: make compat KUBERNETES="v1.33.5 v1.34.4"
	@hack/compat.sh
compat-triton: ## Run the tests that need only a Triton on others: make compat-triton SERVER_IMAGES="nvcr.io/…"
	@hack/compat_triton.sh
soak: ## Run faults, properties and attacks for longer, with more kills and more examples
	@SOAK=1 hack/test.sh faults properties security
e2e: ## Test the installation in a kind cluster
	@hack/test.sh e2e
lint: venv ## Run ruff, mypy and import-linter, and check for stale generated files
	@hack/lint.sh
docs: ## Build the site of the documentation into .cache/site; a broken link is a failure
	@hack/docs.sh build
docs-test: ## Test the site of the documentation and the dashboards in a headless Chromium
	@hack/docs.sh test
docs-pictures: ## Write the pictures of the dashboards in docs/images
	@hack/docs.sh pictures
recordings: ## Record `kubectl triton status --watch` in the cluster, for docs/images
	@hack/recordings.sh
	@.venv/bin/python hack/generate.py
golden: venv ## Regenerate the golden files; review the diff before you commit it
	@UPDATE_GOLDEN=1 .venv/bin/pytest -q -m "not integration" tests/golden
generate: venv ## Regenerate the CRD, the RBAC, the policies, the dashboards, the Helm charts and the generated docs
	@.venv/bin/python hack/generate.py
serve: ## Serve a model repository in Docker and reload models that change: make serve MODELS=my-model/repository
	@hack/world.sh server
	@env -u BUILDX_BUILDER .venv/bin/python hack/serve.py $(if $(PORT),--port=$(PORT)) $(if $(GPUS),--gpus=$(GPUS)) $(if $(DEBUG),--debug=$(DEBUG)) "$(or $(MODELS),model_images/detection/repository)"
bench: ## Run a benchmark: make bench NAME=time_to_ready
	@hack/bench.sh "$(NAME)"
corpus: ## Start a real Triton on every repository in tests/corpus and update docs/validate.md
	@hack/world.sh server
	@.venv/bin/python hack/run_corpus.py $(ONLY)
	@.venv/bin/python hack/run_told.py
	@.venv/bin/python hack/generate.py
lock: venv ## Update the locks of the Python packages (make lock UPGRADE=1 takes the newest versions)
	@.venv/bin/python hack/lock.py $(if $(UPGRADE),--upgrade)
sbom: ## Write the SBOM of the operator's image to dist/operator.cdx.json
	@hack/supply.sh sbom
release: venv ## Make everything that a tag publishes in dist/: make release VERSION=0.1.0 [KEY=cosign.key]
	@.venv/bin/python -m hack.release $(if $(VERSION),--version=$(VERSION)) $(if $(KEY),--key=$(KEY)) $(RELEASE_OPTIONS)
audit: venv ## Look up known vulnerabilities of the locked packages; needs the internet
	@hack/supply.sh audit
cluster: ## Create the kind cluster and install the operator
	@hack/world.sh cluster
	@hack/deploy.sh
monitoring: cluster ## Install Prometheus, Alertmanager and prometheus-adapter in the cluster
	@hack/world.sh monitoring
	@hack/monitoring.sh up
clean: ## Delete the cluster, the registry, the venv and the caches of this clone
	@hack/cluster.sh down
	@rm -rf .cache .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

purge: clean ## Remove everything that these targets installed on this machine outside the clone
	@hack/world.sh --purge
venv:
	@hack/world.sh venv
