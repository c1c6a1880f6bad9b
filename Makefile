# What each target does in detail: the heads of the scripts in tests/testbed/.
.PHONY: demo test unit source properties commands terminal users fuzz lint docs golden bench clean

demo: ## from nothing to an image that has trained on this machine
	@tests/testbed/demo.sh $(ARGS)

test: ## everything, with real engines
	@tests/testbed/test.sh all $(ARGS)

unit: ## the fast tests: no engine, no process
	@tests/testbed/test.sh unit $(ARGS)

source: ## those that read our own source, pages and tests; part of lint
	@tests/testbed/test.sh source $(ARGS)

properties: ## those of the fast tests that try every place or drawn input
	@tests/testbed/test.sh properties $(ARGS)

commands: ## those that start bash, Python and linters
	@tests/testbed/test.sh commands $(ARGS)

terminal: ## the installed wheel at a terminal: commands, pages, mistakes
	@tests/testbed/test.sh terminal $(ARGS)

users: ## what files of one user do to another; as root
	@tests/testbed/test.sh users $(ARGS)

lint:
	@tests/testbed/test.sh lint

docs: ## the pages as a site in build/site; a dead link is an error
	@tests/testbed/test.sh docs

golden: ## rewrites the golden files
	@tests/testbed/test.sh golden $(ARGS)

bench:
	@tests/testbed/test.sh bench $(ARGS)

clean: ## ends our services and removes the state folder; installed engines stay
	@tests/testbed/clean.sh
