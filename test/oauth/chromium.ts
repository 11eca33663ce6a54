import { execFile } from "node:child_process";
import { statSync } from "node:fs";
import { createServer } from "node:http";
import path from "node:path";
import { promisify } from "node:util";
import sparticuz from "@sparticuz/chromium";
import { type Browser, chromium } from "playwright-core";
import type { Test } from "tap";
import { PATIENCE_MS } from "../kit/eventually.ts";
import { listening } from "../kit/listening.ts";
import { nodeCommand } from "../kit/node.ts";
import { preparedDirectory } from "../kit/prepared.ts";

/** The origin of a site that shows this page at every path. */
export async function openSite(t: Test, page: string): Promise<string> {
  const server = createServer((_, response) => {
    response.writeHead(200, { "content-type": "text/html" });
    response.end(page);
  });
  const port = await listening(t, server);
  return `http://127.0.0.1:${port}`;
}

/** The redirect URI of a program on the user's machine. */
export async function openCallback(t: Test): Promise<string> {
  return `${await openSite(t, "You can close this page.")}/callback`;
}

const unwanted = [
  "--disable-web-security",
  "--allow-running-insecure-content",
  "--single-process",
  "--no-zygote",
  // Drawing with an emulated GPU takes most of the browser's time.
  "--ignore-gpu-blocklist",
  "--use-gl=angle",
  "--use-angle=swiftshader",
  "--enable-unsafe-swiftshader",
];

/**
 * The browser's program. The library would unpack it into the directory for temporary files, where
 * one test could start an incomplete file of another.
 */
async function unpack(): Promise<string> {
  const library = import.meta.resolve("@sparticuz/chromium");
  const { size } = statSync(new URL("../bin/chromium.br", library));
  const directory = await preparedDirectory(`chromium-${size}`, (own) => {
    const code = `import library from ${JSON.stringify(library)}; await library.executablePath();`;
    const [program, flags] = nodeCommand(["--input-type=module", "--eval", code]);
    return promisify(execFile)(program, flags, { env: { ...process.env, TMPDIR: own } });
  });
  return path.join(directory, "chromium");
}

/** Starts a headless browser that ends with the test. */
export async function launch(t: Test): Promise<Browser> {
  const browser = await chromium.launch({
    executablePath: await unpack(),
    timeout: PATIENCE_MS,
    args: [...sparticuz.args.filter((arg) => !unwanted.includes(arg)), "--disable-gpu"],
  });
  t.teardown(() => browser.close());
  return browser;
}
