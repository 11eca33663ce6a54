/** The documentation as a site, built from the Markdown of the repository, in a browser. */
import { execFile } from "node:child_process";
import { existsSync, readFileSync, statSync } from "node:fs";
import { createServer } from "node:http";
import path from "node:path";
import { promisify } from "node:util";
import t, { type Test } from "tap";
import { listening } from "../kit/listening.ts";
import { projectRoot } from "../kit/process.ts";
import { launch } from "../oauth/chromium.ts";

const built = path.join(projectRoot, "site/built");
const types = new Map([
  [".css", "text/css"],
  [".html", "text/html"],
  [".js", "text/javascript"],
  [".svg", "image/svg+xml"],
]);

function fileOf(url: string): string | undefined {
  const file = path.join(built, new URL(url, "http://site").pathname);
  const found = file.endsWith(path.sep) ? path.join(file, "index.html") : file;
  return existsSync(found) && statSync(found).isFile() ? found : undefined;
}

async function serveSite(t: Test): Promise<string> {
  const server = createServer(({ url = "/" }, response) => {
    const file = fileOf(url);
    if (file === undefined) response.writeHead(404).end();
    else {
      const type = types.get(path.extname(file)) ?? "application/octet-stream";
      response.writeHead(200, { "content-type": type }).end(readFileSync(file));
    }
  });
  return `http://127.0.0.1:${await listening(t, server)}`;
}

t.test("the site shows the pages, finds words in them, and has no broken parts", async (t) => {
  // A dead link between pages fails the build.
  await promisify(execFile)("npm", ["run", "docs:site"], { cwd: projectRoot });
  const site = await serveSite(t);
  const browser = await launch(t);
  const page = await browser.newPage();
  const problems: string[] = [];
  page.on("pageerror", (error) => problems.push(error.message));
  page.on("response", (response) => {
    if (response.status() >= 400) problems.push(`${response.status()} ${response.url()}`);
  });

  await page.goto(`${site}/`);
  t.match(await page.locator("h1").innerText(), "Gatehouse");
  t.equal(await page.locator("main img").count(), 1);
  await page.goto(`${site}/docs/`);
  await page.locator("aside").getByText("Tutorial", { exact: true }).click();
  await page.locator("h1", { hasText: "Tutorial" }).waitFor();

  await page.locator(".VPNavBarSearch button").first().click();
  await page.locator("input[type=search]").fill("renew certificates");
  const first = page.locator("#localsearch-list a").first();
  await first.waitFor();
  await first.click();
  await page.locator("h1", { hasText: "reverse proxy" }).waitFor();
  t.match(page.url(), "/docs/reverse-proxy.html#renew-certificates");
  t.strictSame(problems, []);
});
