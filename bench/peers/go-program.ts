import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";

/** A program of the Go module proxy. */
export interface GoModule {
  readonly name: string;
  readonly module: string;
  readonly version: string;
  /** The package to build; by default the module's root. */
  readonly package?: string;
}

const folder = path.join(import.meta.dirname, "built");

/**
 * Builds a program, unless an earlier run has, and returns its path.
 *
 * @throws Error with what the compiler said
 */
export function buildGo({ name, module, version, package: built = module }: GoModule): string {
  const program = path.join(folder, `${name}-${version}`);
  if (existsSync(program)) return program;
  const source = path.join(folder, name);
  mkdirSync(source, { recursive: true });
  writeFileSync(path.join(source, "go.mod"), `module bench\n\nrequire ${module} ${version}\n`);
  // An import, so that the requirements of the program itself are resolved too.
  writeFileSync(path.join(source, "import.go"), `package bench\n\nimport _ "${built}"\n`);
  console.error(`building ${name} ${version}, which takes minutes the first time`);
  const flags = ["build", "-mod=mod", "-o", program, built];
  execFileSync("go", flags, { cwd: source, stdio: ["ignore", "ignore", "inherit"] });
  return program;
}
