import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, existsSync, readFileSync, symlinkSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import * as z from "zod";
import { temporaryHome } from "../kit/gateway.ts";
import { nodeCommand } from "../kit/node.ts";
import { cleanEnvironment } from "../kit/process.ts";
import { deployed } from "./programs.ts";

const root = path.join(import.meta.dirname, "../..");
const lines = deployed("Dockerfile")
  .replace(/\\\n/g, "")
  .split("\n")
  .filter((line) => /^[A-Z]/.test(line));

/** What follows an instruction, each time that it occurs. */
function instructions(name: string): string[] {
  return lines
    .filter((line) => line.startsWith(`${name} `))
    .map((line) => line.slice(name.length + 1));
}

const words = z.array(z.string());

/** A command in the form of a list. */
function listed(text = ""): string[] {
  return words.parse(JSON.parse(text.slice(text.indexOf("["))));
}

/** What is copied from the project's directory. */
const copied = instructions("COPY")
  .filter((line) => !line.startsWith("--from"))
  .flatMap((line) => line.split(" ").slice(0, -1));

t.test("all that the image copies is there, and let through to the builder", async (t) => {
  const through = deployed("Dockerfile.dockerignore").split("\n");
  t.equal(
    through.find((line) => !line.startsWith("#")),
    "*",
    "nothing by default",
  );
  for (const name of copied) {
    t.ok(existsSync(path.join(root, name)), name);
    t.ok(through.includes(`!${name}`), name);
  }
  const { engines } = JSON.parse(readFileSync(path.join(root, "package.json"), "utf8"));
  const least = Number(/\d+/.exec(engines.node)?.[0]);
  for (const image of instructions("FROM")) {
    t.ok(Number(/^node:(\d+)-slim/.exec(image)?.[1]) >= least, image);
  }
  const [user = ""] = instructions("USER");
  t.match(user, /^[1-9]\d+:[1-9]\d+$/, "a user by number, and not root");
  t.ok(instructions("RUN").some((line) => line.includes(`-o ${user.split(":")[0]} `)));
});

/** A directory that holds what the image would. */
function layOut(t: Test): string {
  const directory = temporaryHome(t);
  for (const name of copied) {
    cpSync(path.join(root, name), path.join(directory, name), { recursive: true });
  }
  symlinkSync(path.join(root, "node_modules"), path.join(directory, "node_modules"));
  return directory;
}

/** Starts what the image starts; resolves to its port. */
async function startImage(t: Test): Promise<{ child: ChildProcess; port: string }> {
  const directory = layOut(t);
  const [entry] = instructions("ENTRYPOINT");
  const [node, program = "", ...rest] = listed(entry);
  t.equal(node, "node");
  const file = program.replace("/opt/gatehouse", directory);
  const flags = [...rest, ...listed(instructions("CMD")[0])];
  const local = flags.map((flag) => flag.replace("0.0.0.0", "127.0.0.1"));
  const child = spawn(...nodeCommand([file, ...local, "--port", "0"]), {
    env: cleanEnvironment(temporaryHome(t)),
    cwd: directory,
    stdio: ["ignore", "pipe", "inherit"],
  });
  t.teardown(() => child.kill("SIGKILL"));
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    output += text;
    const [, port] = /listening on http:\/\/127\.0\.0\.1:(\d+)/.exec(output) ?? [];
    if (port !== undefined) resolve(port);
  });
  child.once("exit", () => reject(new Error(output)));
  return { child, port: await promise };
}

t.test("what the image holds serves, is found healthy, and drains on its signal", async (t) => {
  const { child, port } = await startImage(t);
  const [check] = instructions("HEALTHCHECK");
  const [, ...flags] = listed(check?.slice(check.indexOf("CMD")));
  const healthOf = async () => {
    const asked = execFile(
      process.execPath,
      flags.map((flag) => flag.replace(":8080/", `:${port}/`)),
    );
    const [code] = await once(asked, "exit");
    return code;
  };
  t.equal(await healthOf(), 0);
  const exit = once(child, "exit");
  t.equal(instructions("STOPSIGNAL")[0], "SIGTERM");
  child.kill("SIGTERM");
  t.strictSame(await exit, [0, null]);
  t.equal(await healthOf(), 1, "and nobody is healthy who is gone");
});
