/**
 * The steps of a release, as the workflow runs them, without publishing.
 *
 *   npm run release:check                            # all steps that this machine can run
 *   node scripts/release.ts build                    # the package, its bill of materials and checksums
 *   node scripts/release.ts chart sha256:...         # the chart, for the image with this digest
 *   node scripts/release.ts notes                    # this version's section of the changelog
 *
 * Everything is written to release/, which is emptied first by build and check.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { parse } from "yaml";
import * as z from "zod";
import {
  packChart,
  packPackage,
  readPackageJson,
  readRoot,
  repositoryOf,
  root,
  withAbsoluteLinks,
} from "./package.ts";
import { smokeTest, withTemporary } from "./smoke.ts";

const output = path.join(root, "release");

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

function sha256(file: string): string {
  return createHash("sha256").update(readFileSync(file)).digest("hex");
}

/** This version's section of the changelog. */
export function releaseNotes(changelog: string, version: string): string {
  const sections = changelog.split(/^## /m);
  const section = sections.find((each) => /^\[?([^\]\s]+)/.exec(each)?.[1] === version);
  const notes = section?.slice(section.indexOf("\n")).trim() ?? "";
  if (notes === "") throw new Error(`CHANGELOG.md: no section for ${version}, or an empty one`);
  return `${notes}\n`;
}

/**
 * Checks what the places that name the version and the repository say.
 *
 * @param env of the workflow: `GITHUB_REPOSITORY`, and `GITHUB_REF_NAME` with the tag
 */
export function checkMetadata(env: NodeJS.ProcessEnv): string[] {
  const manifest = readPackageJson();
  const { version } = manifest;
  const repository = repositoryOf(manifest);
  const chart = z
    .object({ version: z.string(), appVersion: z.string() })
    .parse(parse(readRoot("deploy/helm/gatehouse/Chart.yaml")));
  const lock = z.object({ version: z.string() }).parse(JSON.parse(readRoot("package-lock.json")));
  const problems: string[] = [];
  const expect = (place: string, found: string | undefined, expected: string) => {
    if (found !== expected) problems.push(`${place}: found ${found}; expected ${expected}`);
  };
  expect("package.json: homepage", manifest.homepage, `https://github.com/${repository}#readme`);
  expect("package.json: bugs", manifest.bugs, `https://github.com/${repository}/issues`);
  expect("package-lock.json: version", lock.version, version);
  expect("Chart.yaml: version", chart.version, version);
  expect("Chart.yaml: appVersion", chart.appVersion, version);
  releaseNotes(readRoot("CHANGELOG.md"), version);
  if (env.GITHUB_REF_TYPE === "tag") expect("tag", env.GITHUB_REF_NAME, `v${version}`);
  if (env.GITHUB_REPOSITORY !== undefined) {
    expect("package.json: repository", repository, env.GITHUB_REPOSITORY);
  }
  return problems;
}

/** Makes a file twice, under two umasks and in two directories. @throws Error if the bytes differ */
async function makeTwice(make: (directory: string) => Promise<string>): Promise<string> {
  const file = await make(output);
  await withTemporary(async (directory) => {
    const umask = process.umask(0o077);
    try {
      const again = await make(directory);
      if (sha256(again) !== sha256(file)) {
        throw new Error(`${path.basename(file)} has other bytes when it is made again`);
      }
    } finally {
      process.umask(umask);
    }
  });
  return file;
}

async function writeBillOfMaterials(directory: string): Promise<string> {
  const { name, version } = readPackageJson();
  const text = execFileSync("bash", [".ci/sbom"], { cwd: root, encoding: "utf8" });
  const found = z
    .looseObject({ metadata: z.looseObject({ timestamp: z.string() }), serialNumber: z.string() })
    .parse(JSON.parse(text));
  // Both are new in each run.
  const { serialNumber: _, metadata, ...rest } = found;
  const { timestamp: __, ...lasting } = metadata;
  const content = JSON.stringify({ ...rest, metadata: lasting }, undefined, 2);
  const file = path.join(directory, `${name}-${version}.cdx.json`);
  writeFileSync(file, `${content}\n`);
  return file;
}

function writeChecksums(): void {
  const files = readdirSync(output).filter((name) => name !== "SHA256SUMS");
  const lines = files.toSorted().map((name) => `${sha256(path.join(output, name))}  ${name}\n`);
  writeFileSync(path.join(output, "SHA256SUMS"), lines.join(""));
}

async function build(): Promise<string> {
  const problems = checkMetadata(process.env);
  if (problems.length > 0) throw new Error(problems.join("\n"));
  rmSync(output, { recursive: true, force: true });
  mkdirSync(output);
  const tarball = await makeTwice(packPackage);
  await makeTwice(writeBillOfMaterials);
  writeChecksums();
  return tarball;
}

function has(program: string, ...flags: string[]): boolean {
  return spawnSync(program, flags, { stdio: "ignore" }).status === 0;
}

async function check(): Promise<void> {
  const tarball = await build();
  say(`${path.basename(tarball)}: packed twice, under two umasks, with equal bytes`);
  await smokeTest(tarball);
  say("installed in an empty project; its gateway served queries and drained");
  const chart = await makeTwice(packChart);
  if (has("helm", "version")) {
    execFileSync("helm", ["template", "gatehouse", chart], { stdio: "ignore" });
    say(`${path.basename(chart)}: packed twice with equal bytes, and rendered`);
  } else say(`${path.basename(chart)}: packed twice with equal bytes; not rendered without helm`);
  if (has("docker", "info")) {
    const flags = ["build", "--file", "deploy/Dockerfile", "--tag", "gatehouse", "."];
    execFileSync("docker", flags, { cwd: root, stdio: "inherit" });
    say("image: built");
  } else say("image: not built, because no Docker answers; `npm run test:nightly` runs its steps");
  if (has("actionlint", "--version")) {
    execFileSync("actionlint", { cwd: root, stdio: "inherit" });
    say("workflows: actionlint finds nothing");
  } else say("workflows: not checked without actionlint");
  writeChecksums();
  say(`\n${readFileSync(path.join(output, "SHA256SUMS"), "utf8")}`.trimEnd());
  const [owner] = repositoryOf(readPackageJson()).split("/");
  if (owner === "OWNER")
    say("\npackage.json still names the placeholder OWNER as the repository's owner.");
}

const commands = new Map<string, (argument?: string) => Promise<void>>([
  ["check", check],
  [
    "build",
    async () => {
      await build();
    },
  ],
  [
    "chart",
    async (digest = "") => {
      if (!/^sha256:[0-9a-f]{64}$/.test(digest)) {
        throw new Error(`found digest ${JSON.stringify(digest)}; allowed: sha256:...`);
      }
      mkdirSync(output, { recursive: true });
      say(await packChart(output, digest));
    },
  ],
  [
    "notes",
    async () => {
      const manifest = readPackageJson();
      const notes = releaseNotes(readRoot("CHANGELOG.md"), manifest.version);
      process.stdout.write(withAbsoluteLinks(notes, repositoryOf(manifest), manifest.version));
    },
  ],
  [
    "refuse",
    async () => {
      throw new Error(
        "npm would pack this clone as it is; run `npm run release:check`, which packs into release/",
      );
    },
  ],
]);

if (import.meta.main) {
  const [name = "", argument] = process.argv.slice(2);
  const command = commands.get(name);
  try {
    if (command === undefined) {
      throw new Error(`found command ${name}; allowed: ${[...commands.keys()].join(", ")}`);
    }
    await command(argument);
  } catch (error) {
    process.stderr.write(`release: ${error instanceof Error ? error.message : error}\n`);
    process.exitCode = 1;
  }
}
