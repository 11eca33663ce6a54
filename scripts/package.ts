/** Packs what a release publishes: the npm package and the chart, with the same bytes on every machine. */
import { execFileSync } from "node:child_process";
import { cpSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { create, type TarOptionsWithAliasesAsyncFile } from "tar";
import * as z from "zod";
import { withTemporary } from "./smoke.ts";

export const root = path.join(import.meta.dirname, "..");

const packageJson = z.object({
  name: z.string(),
  version: z.string(),
  homepage: z.string(),
  bugs: z.string(),
  repository: z.object({ type: z.literal("git"), url: z.string() }),
  keywords: z.array(z.string()).min(1),
  bin: z.record(z.string(), z.string()),
});

export type PackageJson = z.infer<typeof packageJson>;

export function readRoot(name: string): string {
  return readFileSync(path.join(root, name), "utf8");
}

export function readPackageJson(): PackageJson {
  return packageJson.parse(JSON.parse(readRoot("package.json")));
}

/** The owner and name of the repository on GitHub, from the one place that names them. */
export function repositoryOf({ repository }: PackageJson): string {
  const [, name] =
    /^git\+https:\/\/github\.com\/([\w.-]+\/[\w.-]+)\.git$/.exec(repository.url) ?? [];
  if (name === undefined) {
    throw new Error(
      `package.json: repository.url: found ${repository.url}; allowed: git+https://github.com/OWNER/NAME.git`,
    );
  }
  return name;
}

/**
 * Makes links to files of the repository absolute, for readers on npm. Leaves out diagrams, which npm
 * shows as code.
 */
export function withAbsoluteLinks(markdown: string, repository: string, version: string): string {
  const ref = `v${version}`;
  return markdown
    .replace(/^```mermaid\n.*?^```\n\n?/gms, "")
    .split(/(^```.*?^```$)/gms)
    .map((part, index) =>
      index % 2 === 1
        ? part
        : part.replace(/(!?)(\[[^\]]*\])\((?![a-z]+:|#)([^)\s]+)\)/g, (_, image, label, target) =>
            image === "!"
              ? `!${label}(https://raw.githubusercontent.com/${repository}/${ref}/${target})`
              : `${label}(https://github.com/${repository}/blob/${ref}/${target})`,
          ),
    )
    .join("");
}

/** Modes and times come from here, not from the checkout and its umask. */
async function archive(
  file: string,
  cwd: string,
  prefix: string,
  files: readonly string[],
  executable: ReadonlySet<string>,
): Promise<void> {
  const options: TarOptionsWithAliasesAsyncFile = {
    cwd,
    file,
    gzip: { level: 9 },
    prefix,
    portable: true,
    noDirRecurse: true,
    // The time that npm writes; earlier ones break zip files of the content.
    mtime: new Date("1985-10-26T08:15:00Z"),
    filter(name, stat) {
      const mode = executable.has(path.posix.normalize(name)) ? 0o755 : 0o644;
      // The other bits say that it is a file.
      stat.mode = ((stat.mode ?? 0) & ~0o7777) | mode;
      return true;
    },
  };
  await create(options, files.toSorted());
}

const listed = z.tuple([z.object({ files: z.array(z.object({ path: z.string() })) })]);

/**
 * Compiles the sources and packs the npm package.
 *
 * @returns the path of the tarball, in `directory`
 */
export async function packPackage(directory: string): Promise<string> {
  const manifest = readPackageJson();
  const { name, version, bin } = manifest;
  const file = path.join(directory, `${name}-${version}.tgz`);
  return withTemporary(async (staging) => {
    for (const each of ["bin", "schemas", "gateway.toml.example", "LICENSE", "package.json"]) {
      cpSync(path.join(root, each), path.join(staging, each), { recursive: true });
    }
    for (const each of ["README.md", "CHANGELOG.md"]) {
      const text = withAbsoluteLinks(readRoot(each), repositoryOf(manifest), version);
      writeFileSync(path.join(staging, each), text);
    }
    const compiler = path.join(root, "node_modules/.bin/tsc");
    const flags = ["-p", "tsconfig.build.json", "--outDir", path.join(staging, "dist")];
    execFileSync(compiler, flags, {
      cwd: root,
      stdio: "inherit",
      shell: process.platform === "win32",
    });
    const output = execFileSync("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], {
      cwd: staging,
      encoding: "utf8",
    });
    const [{ files }] = listed.parse(JSON.parse(output));
    const programs = new Set(Object.values(bin).map((each) => path.posix.normalize(each)));
    await archive(
      file,
      staging,
      "package",
      files.map((one) => one.path),
      programs,
    );
    return file;
  });
}

/**
 * Packs the chart with the published image.
 *
 * @param digest of the image, such as `sha256:...`; without it, the chart names the version
 */
export async function packChart(directory: string, digest = ""): Promise<string> {
  const manifest = readPackageJson();
  const [owner = ""] = repositoryOf(manifest).toLowerCase().split("/");
  const source = path.join(root, "deploy/helm/gatehouse");
  const file = path.join(directory, `gatehouse-chart-${manifest.version}.tgz`);
  return withTemporary(async (staging) => {
    const chart = path.join(staging, "gatehouse");
    // store.sql is a link to a file outside of the chart.
    cpSync(source, chart, { recursive: true, dereference: true });
    const replace = (from: string, to: string) => {
      const name = path.join(chart, "values.yaml");
      const text = readFileSync(name, "utf8");
      if (!text.includes(from)) throw new Error(`values.yaml: missing ${JSON.stringify(from)}`);
      writeFileSync(name, text.replace(from, to));
    };
    replace("  repository: gatehouse\n", `  repository: ghcr.io/${owner}/gatehouse\n`);
    replace('  digest: ""\n', `  digest: "${digest}"\n`);
    const files = readdirSync(staging, { recursive: true, encoding: "utf8" }).filter((name) =>
      statSync(path.join(staging, name)).isFile(),
    );
    await archive(file, staging, "", files, new Set());
    return file;
  });
}
