/** `gatehouse access export | apply | edit | history | rollback`: versions in the store. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import type { Command } from "commander";
import { diffSnapshots } from "../core/access/diff.ts";
import { parseAccess } from "../core/access/parse.ts";
import { invocation } from "../core/base/product.ts";
import { storesAccess } from "../core/config/addresses.ts";
import type { LoadedConfiguration } from "../core/config/load.ts";
import { describeDiff } from "../core/http/change-records.ts";
import {
  type AccessVersion,
  accessAt,
  editableUser,
  exportedVersion,
  planApply,
  planRollback,
  previewAccess,
  type ReplacementPlan,
  renderAccess,
  replaceAccess,
  versionsBack,
} from "../features/store/access-store.ts";
import { printDifference } from "./access-questions.ts";
import { operatorOf, storeOf } from "./operator.ts";
import { type CommonOptions, defineCommands, loadFor, readCount } from "./options.ts";
import { plainly, print, printList, UsageError } from "./output.ts";

/** @throws Error unless users and grants are in a store */
export function loadWithStore(options: CommonOptions): LoadedConfiguration {
  const loaded = loadFor(options);
  const { access_control_file: file } = loaded.configuration.auth;
  if (storesAccess(loaded.configuration)) return loaded;
  throw new Error(
    `users and grants are in ${file}, not in a store; edit that file, keep it under version control, and compare versions with \`${invocation} access diff\``,
  );
}

async function exportedText(loaded: LoadedConfiguration): Promise<string> {
  return renderAccess((await operatorOf(loaded)).state.snapshot, editableUser);
}

type ChangeFlags = CommonOptions & { readonly dryRun?: true };

async function applyPlan(
  loaded: LoadedConfiguration,
  plan: ReplacementPlan,
  { dryRun, force = false }: ChangeFlags,
): Promise<void> {
  const operator = await operatorOf(loaded);
  const { state } = operator;
  let before = state.snapshot;
  if (dryRun) {
    const next = state.position.version + 1;
    return printDifference(before, await previewAccess(state, plan(before), next, force));
  }
  const noting: ReplacementPlan = (current) => {
    before = current;
    return plan(current);
  };
  const after = await replaceAccess(operator, noting, { force });
  printDifference(before, after);
  print(`${after.version === before.version ? "Still" : "Now"} version ${after.version}.`);
}

async function applyFile(loaded: LoadedConfiguration, file: string, options: ChangeFlags) {
  const bytes = await readFile(file);
  const version = exportedVersion(bytes.toString());
  if (version === undefined) {
    throw new Error(
      `${file} does not begin with a version; start from the output of \`${invocation} access export\``,
    );
  }
  const { records } = await parseAccess(bytes, file);
  await applyPlan(loaded, planApply(records, version), options);
}

async function editAccess(options: ChangeFlags): Promise<void> {
  const loaded = loadWithStore(options);
  const editor = process.env.EDITOR;
  if (!editor) throw new UsageError("$EDITOR is not set; set it to the command of your editor");
  const text = await exportedText(loaded);
  const directory = await mkdtemp(path.join(tmpdir(), "gatehouse-"));
  const file = path.join(directory, "access_control.toml");
  try {
    await writeFile(file, text, { mode: 0o600 });
    // Through a shell, since the variable may contain flags.
    const child = spawn("sh", ["-c", `${editor} "$1"`, "sh", file], { stdio: "inherit" });
    const [code, signal] = await once(child, "exit");
    if (code !== 0) throw new Error(`the editor exited with ${code ?? signal}: ${editor}`);
    if ((await readFile(file, "utf8")) === text) print("Nothing was changed.");
    else await applyFile(loaded, file, options);
  } catch (error) {
    process.stderr.write(`your edits are in ${file}\n`);
    throw error;
  }
  await rm(directory, { recursive: true });
}

const SHOWN = 3;

function viewVersion({ version, at, author, before, after }: AccessVersion) {
  return { version, at, author, changes: describeDiff(diffSnapshots(before, after)) };
}

function summarizeVersion({ changes }: ReturnType<typeof viewVersion>): string {
  const shown = changes
    .slice(0, SHOWN)
    .map(({ change, ...about }) => [change, ...Object.values(about)].join(" "));
  const more = changes.length - SHOWN;
  return [...shown, ...(more > 0 ? [`${more} more`] : [])].join("; ");
}

async function listVersions(options: CommonOptions & { readonly last: number }): Promise<void> {
  const loaded = loadWithStore(options);
  const { database } = await storeOf(loaded);
  const { state } = await operatorOf(loaded);
  const last: ReturnType<typeof viewVersion>[] = [];
  for await (const version of versionsBack(database.query, state)) {
    if (last.unshift(viewVersion(version)) === options.last) break;
  }
  printList(last, options, ["VERSION", "AT", "AUTHOR", "CHANGED"], (one) => [
    String(one.version),
    one.at.toISOString(),
    `${one.author.kind} ${plainly(one.author.name)}`,
    summarizeVersion(one),
  ]);
}

async function rollBack(text: string, options: ChangeFlags): Promise<void> {
  if (!/^\d{1,15}$/.test(text))
    throw new UsageError("<version>: allowed: a number, as shown by `access history`");
  const version = Number(text);
  const loaded = loadWithStore(options);
  const { database } = await storeOf(loaded);
  const { state } = await operatorOf(loaded);
  const { position } = state;
  if (version > position.version) {
    throw new Error(`version ${version} does not exist; the latest is ${position.version}`);
  }
  const { snapshot, gone } = await accessAt(database.query, state, version);
  if (gone.length > 0)
    print(`Not restored, because these users have been removed since: ${gone.join(", ")}`);
  await applyPlan(loaded, planRollback(snapshot, gone), options);
}

const help = `
export          print the store's grants, boundaries, attributes and same_as
apply --force   apply an edited export, unless the store has changed since
  <file>        the edited export
  --dry-run     only show who would gain and lose what
edit --force    export, open $EDITOR, and apply
history --json  list the store's latest versions with author and changes
  --last <count>  the number of versions
rollback --force  restore grants, boundaries, attributes and same_as of a version
  <version>     a version number, as shown by "access history"
  --dry-run     only show who would gain and lose what
`;

export function versionCommands(): Command[] {
  const runs = {
    export: async (options: CommonOptions) =>
      void process.stdout.write(await exportedText(loadWithStore(options))),
    apply: (file: string, options: ChangeFlags) => applyFile(loadWithStore(options), file, options),
    edit: editAccess,
    history: listVersions,
    rollback: rollBack,
  };
  return defineCommands(help, runs, { last: { parse: readCount, fallback: [50] } });
}
