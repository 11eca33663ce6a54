/** Runs the steps of deploy/Dockerfile without Docker, on this machine's Node and npm. */
import { execFile } from "node:child_process";
import { chownSync, cpSync, existsSync, mkdirSync, readdirSync, statSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import t from "tap";
import * as z from "zod";
import { useGateway } from "../../scripts/smoke.ts";
import { deployed } from "../deploy/programs.ts";
import { temporaryHome } from "../kit/gateway.ts";

const run = promisify(execFile);
const root = path.join(import.meta.dirname, "../..");
const isRoot = process.getuid?.() === 0;

interface Instruction {
  readonly name: string;
  readonly value: string;
}

const instructions: readonly Instruction[] = deployed("Dockerfile")
  .replace(/\\\n/g, "")
  .split("\n")
  .filter((line) => /^[A-Z]/.test(line))
  .map((line) => ({ name: line.split(" ")[0] ?? "", value: line.slice(line.indexOf(" ") + 1) }));

/** The result of a build: the file system of its last stage, with its variables and its user. */
class Build {
  readonly #directory: string;
  readonly #stages = new Map<string, string>();
  readonly environment: NodeJS.ProcessEnv = {};
  #stage = "";
  #workdir = "/";
  user = "0";

  constructor(directory: string) {
    this.#directory = directory;
  }

  /** Where a path of the image is on this machine. */
  place(name: string, stage = this.#stage): string {
    return path.join(stage, path.resolve(this.#workdir, name));
  }

  placeAll(text: string): string {
    return text.replaceAll(/\/(?:opt|var\/lib)\/gatehouse/g, (name) => this.place(name));
  }

  async step({ name, value }: Instruction): Promise<void> {
    if (name === "FROM") {
      const [, , alias = "last"] = value.split(" ");
      this.#stage = path.join(this.#directory, alias);
      this.#stages.set(alias, this.#stage);
      this.#workdir = "/";
      mkdirSync(this.place("/opt"), { recursive: true });
      mkdirSync(this.place("/var/lib"), { recursive: true });
    } else if (name === "WORKDIR") {
      this.#workdir = value;
      mkdirSync(this.place("."), { recursive: true });
    } else if (name === "ENV") {
      for (const pair of value.split(" ")) {
        const [variable = "", content = ""] = pair.split("=");
        this.environment[variable] = this.placeAll(content);
      }
    } else if (name === "COPY") {
      this.#copy(value.split(" "));
    } else if (name === "RUN") {
      const flags = [
        "-c",
        isRoot ? this.placeAll(value) : this.placeAll(value).replace(/-[og] \d+ /g, ""),
      ];
      await run("sh", flags, { cwd: this.place("."), maxBuffer: 16 * 1024 * 1024 });
    } else if (name === "USER") {
      this.user = value;
    }
  }

  #copy(words: readonly string[]): void {
    const [, from] = /^--from=(.*)$/.exec(words[0] ?? "") ?? [];
    const sources = words.slice(from === undefined ? 0 : 1, -1);
    const target = this.place(words.at(-1) ?? "");
    for (const source of sources) {
      const stage = this.#stages.get(from ?? "");
      const file = stage === undefined ? path.join(root, source) : this.place(source, stage);
      const isInside = words.at(-1)?.endsWith("/");
      cpSync(file, isInside ? path.join(target, path.basename(file)) : target, { recursive: true });
    }
  }
}

const words = z.array(z.string());

t.test("the steps of the Dockerfile make an image whose gateway serves", async (t) => {
  const directory = temporaryHome(t);
  const build = new Build(directory);
  for (const instruction of instructions) await build.step(instruction);

  const modules = readdirSync(build.place("node_modules"));
  t.ok(modules.includes("pg") && modules.includes("hono"), "production dependencies");
  t.notOk(modules.includes("tap") || modules.includes("typescript"), "and no others");
  t.notOk(existsSync(build.place("test")));
  const home = build.place("/var/lib/gatehouse");
  t.equal(statSync(home).mode & 0o777, 0o700);
  if (isRoot) t.equal(`${statSync(home).uid}:${statSync(home).gid}`, build.user);

  const entry = instructions.find(({ name }) => name === "ENTRYPOINT")?.value ?? "";
  const [, program = ""] = words.parse(JSON.parse(entry));
  // The test is root, but the image's directory belongs to the image's user.
  if (isRoot) chownSync(home, 0, 0);
  const flags = [build.placeAll(program)];
  const env = { ...process.env, ...build.environment };
  await useGateway(process.execPath, home, { flags, env });
});
