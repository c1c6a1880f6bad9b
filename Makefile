# What each target does in detail: the heads of the scripts in setup/.
.PHONY: demo test unit commands terminal users fuzz lint golden bench clean

demo: ## from nothing to an image that has trained on this machine
	@setup/demo.sh $(ARGS)

test: ## everything, with real engines
	@setup/test.sh all $(ARGS)

unit: ## the fast tests: no engine, no process
	@setup/test.sh unit $(ARGS)

commands: ## those that start bash, Python and linters
	@setup/test.sh commands $(ARGS)

terminal: ## the installed wheel at a terminal: commands, pages, mistakes
	@setup/test.sh terminal $(ARGS)

users: ## what files of one user do to another; as root
	@setup/test.sh users $(ARGS)

lint:
	@setup/test.sh lint

golden: ## rewrites the golden files
	@setup/test.sh golden $(ARGS)

bench:
	@setup/test.sh bench $(ARGS)

clean: ## ends our services and removes the state folder; installed engines stay
	@setup/clean.sh
