# What needs more than a line is in hack/. Two commands are all that a newcomer needs: make demo, make test.
.DEFAULT_GOAL := help
SHELL := bash
MAKEFLAGS += --no-print-directory

.PHONY: help demo test unit rules server integration faults properties soak e2e lint golden generate serve bench corpus lock sbom audit cluster monitoring clean purge venv

help: ## Show this
	@sed -n 's/^\([a-z0-9]*\):.*## /\1	/p' Makefile | while IFS='	' read -r name text; do printf '  make %-12s %s\n' "$$name" "$$text"; done

demo: ## From nothing to boxes: a cluster, the operator, a detector, a picture
	@hack/demo.sh
test: ## Every test, each with all that it needs
	@hack/test.sh unit rules server integration faults properties e2e
unit: ## Pure code and golden files
	@hack/test.sh unit
rules: ## The Prometheus rules and the dashboards' queries, against a real Prometheus
	@hack/test.sh rules
server: ## The model images, under a real Triton in Docker
	@hack/test.sh server
integration: ## The operator against a real API server
	@hack/test.sh integration
faults: ## The operator while the world around it breaks
	@hack/test.sh faults
properties: ## Generated bad input against a real API server
	@hack/test.sh properties
soak: ## Faults and bad input in full: more kills, longer outages, far more examples
	@SOAK=1 hack/test.sh faults properties
e2e: ## The installation, in a kind cluster
	@hack/test.sh e2e
lint: venv ## ruff, mypy, the layers, stale generated files
	@hack/lint.sh
golden: venv ## Write the golden files anew; look at the diff before you commit it
	@UPDATE_GOLDEN=1 .venv/bin/pytest -q -m "not integration" tests/golden
generate: venv ## Write what is made from the code: the CRD, the RBAC, the dashboards
	@.venv/bin/python hack/generate.py
serve: ## A model repository in Docker, loaded anew as it changes: make serve MODELS=my-model/repository
	@hack/world.sh server
	@.venv/bin/python hack/serve.py $(if $(PORT),--port=$(PORT)) $(if $(GPUS),--gpus=$(GPUS)) "$(or $(MODELS),model_images/detection/repository)"
bench: ## A benchmark: make bench NAME=time_to_ready
	@hack/bench.sh "$(NAME)"
corpus: ## The real server against every repository of tests/corpus, into docs/validate.md
	@hack/world.sh server
	@.venv/bin/python hack/run_corpus.py $(ONLY)
	@.venv/bin/python hack/generate.py
lock: venv ## Pin the Python packages anew (make lock UPGRADE=1 takes the newest)
	@.venv/bin/python hack/lock.py $(if $(UPGRADE),--upgrade)
sbom: ## What the operator's image has of other people's code: dist/operator.cdx.json
	@hack/supply.sh sbom
audit: venv ## Known vulnerabilities of the locked packages; needs the internet
	@hack/supply.sh audit
cluster: ## The cluster with the operator in it
	@hack/world.sh cluster
	@hack/deploy.sh
monitoring: cluster ## Prometheus, Alertmanager and the adapter beside it
	@hack/world.sh monitoring
	@hack/monitoring.sh up
clean: ## Delete the cluster, the registry, the venv and the caches of this clone
	@hack/cluster.sh down
	@rm -rf .cache .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

purge: clean ## Remove everything that any of these has put on this machine outside the clone
	@hack/world.sh --purge
venv:
	@hack/world.sh venv
