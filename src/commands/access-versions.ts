/** `gatehouse access export | apply | edit | history | rollback`: versions in the store. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { diffSnapshots } from "../access/diff.ts";
import { parseAccess } from "../access/parse.ts";
import type { LoadedConfiguration } from "../config/load.ts";
import { describeDiff } from "../gateway/change-records.ts";
import { invocation } from "../product.ts";
import { previewAccess, type ReplacementPlan, replaceAccess } from "../store/access-store.ts";
import {
  type AccessVersion,
  accessAt,
  editableUser,
  planApply,
  planRollback,
  usersGone,
  versionsBack,
} from "../store/access-versions.ts";
import { operateStore, type StoreOperator, withStore } from "../store/open.ts";
import { renderAccess, versionOf } from "../store/transfer.ts";
import { printDifference } from "./access-questions.ts";
import { loadFor } from "./load.ts";
import type { CommonOptions } from "./options.ts";
import { plainly, print, printList, UsageError, warn } from "./output.ts";

/** @throws Error unless users and grants are in a store */
function loadWithStore(options: CommonOptions): LoadedConfiguration {
  const loaded = loadFor(options);
  const { store, auth } = loaded.configuration;
  if (store.url !== undefined && store.access === "store") return loaded;
  throw new Error(
    `users and grants are in ${auth.access_control_file}, not in a store: edit that file, keep its versions under version control, and compare two by \`${invocation} access diff\``,
  );
}

async function exportedText(loaded: LoadedConfiguration): Promise<string> {
  return withStore(loaded, async (store) => {
    const { state } = await operateStore(store);
    return renderAccess(state.snapshot, editableUser);
  });
}

export async function exportAccess(options: CommonOptions): Promise<void> {
  process.stdout.write(await exportedText(loadWithStore(options)));
}

interface ChangeFlags extends CommonOptions {
  readonly dryRun?: boolean;
  readonly force?: boolean;
}

async function carryOut(
  operator: StoreOperator,
  plan: ReplacementPlan,
  { dryRun = false, force = false }: ChangeFlags,
): Promise<void> {
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
  const isSame = after.version === before.version;
  print(isSame ? `Still version ${after.version}.` : `Now version ${after.version}.`);
}

async function applyFile(loaded: LoadedConfiguration, file: string, flags: ChangeFlags) {
  const bytes = await readFile(file);
  const version = versionOf(bytes.toString());
  if (version === undefined) {
    throw new Error(
      `${file} does not begin with the version that it was made of: begin with \`${invocation} access export\``,
    );
  }
  const { records } = await parseAccess(bytes, file);
  await withStore(loaded, async (store) =>
    carryOut(await operateStore(store, warn), planApply(records, version), flags),
  );
}

export async function applyAccess(file: string, options: ChangeFlags): Promise<void> {
  await applyFile(loadWithStore(options), file, options);
}

/** @throws Error unless the editor exits with status 0 */
async function openEditor(editor: string, file: string): Promise<void> {
  // Through a shell, since the variable may contain flags.
  const child = spawn("sh", ["-c", `${editor} "$1"`, "sh", file], { stdio: "inherit" });
  const [code] = await once(child, "exit");
  if (code !== 0) throw new Error(`the editor failed: ${editor}`);
}

export async function editAccess(options: ChangeFlags): Promise<void> {
  const loaded = loadWithStore(options);
  const editor = process.env.EDITOR;
  if (!editor) throw new UsageError("$EDITOR is not set: it says what to edit with");
  const text = await exportedText(loaded);
  const directory = await mkdtemp(path.join(tmpdir(), "gatehouse-"));
  const file = path.join(directory, "access_control.toml");
  try {
    await writeFile(file, text, { mode: 0o600 });
    await openEditor(editor, file);
    if ((await readFile(file, "utf8")) === text) print("Nothing was changed.");
    else await applyFile(loaded, file, options);
  } catch (error) {
    process.stderr.write(`what was edited is in ${file}\n`);
    throw error;
  }
  await rm(directory, { recursive: true });
}

const SHOWN = 3;

function viewVersion({ version, at, author, before, after }: AccessVersion) {
  return { version, at, author, changes: describeDiff(diffSnapshots(before, after)) };
}

function summaryOf({ changes }: ReturnType<typeof viewVersion>): string {
  const shown = changes
    .slice(0, SHOWN)
    .map(({ change, ...about }) => [change, ...Object.values(about)].join(" "));
  const more = changes.length - SHOWN;
  return [...shown, ...(more > 0 ? [`${more} more`] : [])].join("; ");
}

/**
 * Takes the first `count` versions of a newest-first sequence and returns them in ascending order.
 */
async function lastOf(versions: AsyncIterable<AccessVersion>, count: number) {
  const last: ReturnType<typeof viewVersion>[] = [];
  for await (const version of versions) {
    if (last.push(viewVersion(version)) === count) break;
  }
  return last.reverse();
}

export async function listVersions(
  options: CommonOptions & { readonly last: number },
): Promise<void> {
  const known = await withStore(loadWithStore(options), async (store) => {
    const { state } = await operateStore(store);
    return lastOf(versionsBack(store.database.query, state), options.last);
  });
  printList(known, options, ["VERSION", "AT", "AUTHOR", "CHANGED"], (one) => [
    ...[String(one.version), one.at.toISOString()],
    ...[`${one.author.kind} ${plainly(one.author.name)}`, summaryOf(one)],
  ]);
}

export async function rollBack(text: string, options: ChangeFlags): Promise<void> {
  if (!/^\d{1,15}$/.test(text)) throw new UsageError("a version is a number");
  const version = Number(text);
  await withStore(loadWithStore(options), async (store) => {
    const operator = await operateStore(store, warn);
    const { snapshot, position } = operator.state;
    if (version > position.version) {
      throw new Error(`there is no version ${version}: the newest is ${position.version}`);
    }
    const earlier = await accessAt(store.database.query, operator.state, version);
    const gone = usersGone(snapshot, earlier).join(", ");
    if (gone !== "") print(`Left out, since they have no record any more: ${gone}`);
    await carryOut(operator, planRollback(earlier), options);
  });
}
