import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { styleText } from "node:util";
import type { Command } from "commander";
import { type PresetName, presetNames } from "../core/config/upstream.ts";
import type { PresetEndpoint } from "../features/databases/preset.ts";
import type { SuiteCheck } from "../features/databases/suite.ts";
import type { SuiteServer } from "../features/databases/suites.ts";
import { type CommonOptions, commandGroup, defineCommands } from "./options.ts";
import { FAILURE, onStop, print, printJson, printList } from "./output.ts";
import { readServerCredential } from "./upstream.ts";

async function show(name: PresetName, options: CommonOptions): Promise<void> {
  const { presets } = await import("../features/databases/presets.ts");
  const { endpoints } = await presets[name]();
  const view = ({ method, path, right, names = "", parameters = [], body }: PresetEndpoint) => {
    return { method, path, right, names, parameters, body: body ?? "none" };
  };
  const head = ["METHOD", "PATH", "RIGHT", "NAMES BESIDES THE PATH", "PARAMETERS", "BODY"];
  printList(endpoints.map(view), options, head, (one) => [
    one.method,
    one.path,
    one.right,
    one.names,
    one.parameters.join(" "),
    one.body,
  ]);
}

interface TestOptions extends CommonOptions {
  readonly url: string;
  readonly credentialFile?: string;
}

async function readServer({ url, credentialFile: file }: TestOptions): Promise<SuiteServer> {
  const line = await readServerCredential(url, file);
  if (line === undefined) return { url, credential: undefined };
  const [, header, value] = /^([A-Za-z0-9-]+): *(\S.*)$/.exec(line) ?? [];
  if (header === undefined || value === undefined) {
    const allowed = 'one header, such as "Authorization: Basic ..." or "x-chroma-token: ..."';
    throw new Error(`${file}: allowed: ${allowed}`);
  }
  return { url, credential: { header, value } };
}

function printFailure({ title, found = "" }: SuiteCheck): void {
  print(`${styleText("red", "FAIL")}  ${title}`);
  // Without terminal control sequences.
  print(`      ${found.replace(/\p{Cc}+/gu, " ")}`);
}

async function test(name: PresetName, options: TestOptions): Promise<void> {
  const server = await readServer(options);
  const { suites } = await import("../features/databases/presets.ts");
  const { runSuite, writeSuiteFiles } = await import("../features/databases/suites.ts");
  const suite = await suites[name]();
  const checks: SuiteCheck[] = [];
  const stop = new AbortController();
  // The suite removes its databases first.
  onStop((cancelled) => stop.abort(cancelled));
  await using opened = new AsyncDisposableStack();
  const home = await mkdtemp(path.join(tmpdir(), "gatehouse-preset-"));
  opened.defer(() => rm(home, { recursive: true, force: true }));
  const password = await writeSuiteFiles(home, suite, server);
  const { loadConfiguration } = await import("../core/config/load.ts");
  const { createLog } = await import("../core/observe/log.ts");
  const { startGateway } = await import("../app/start.ts");
  const config = path.join(home, "gateway.toml");
  const loaded = loadConfiguration({ config, env: { GATEHOUSE_HOME: home }, cwd: home });
  const gateway = await startGateway(loaded, {
    log: createLog({ write: () => {} }),
    chosenPassword: undefined,
    hasTerminal: false,
    loadConsole: () => import("../features/console/app.ts"),
  });
  opened.defer(() => gateway.close());
  await runSuite({
    suite,
    server,
    gateway: gateway.facts.url,
    password,
    signal: stop.signal,
    report(check) {
      checks.push(check);
      if (!options.json && !check.holds) printFailure(check);
    },
  });
  const failed = checks.filter(({ holds }) => !holds).length;
  if (options.json) printJson({ preset: name, url: server.url, checks });
  else print(`${checks.length - failed} of ${checks.length} checks held`);
  if (failed > 0) process.exitCode = FAILURE;
}

const help = `
show --json     print what a preset lets through, and the right that each request needs
  <preset>               the name in upstream.preset
test --json     send allowed, denied and attacking requests to a server through a gateway of its own; uses databases that begin with gatehouse_test_ and removes them
  <preset>               the name in upstream.preset
  --url <url>            the server: http://host:port, https://host:port, unix:/path (required)
  --credential-file <file>  a file with the header that the server wants, as "name: value"
`;

export function presetCommand(): Command {
  const commands = defineCommands(help, { show, test }, { preset: { choices: presetNames } });
  return commandGroup("preset", "inspect and test the interfaces of other databases", commands);
}
