import t from "tap";
import { eventually } from "../kit/eventually.ts";
import { ADMIN_PASSWORD } from "../kit/gateway.ts";
import { ConsoleClient, signedIn, startConsole } from "./kit.ts";

t.test(
  "a session ends with the password, by disabling, by revocation, and with the user",
  async (t) => {
    const { gateway, url } = await startConsole(t);
    const admin = await gateway.login();
    const path = "/api/users/bob";
    const ends: Record<string, () => Promise<unknown>> = {
      password: () =>
        gateway.send("PUT", `${path}/password`, { new_password: "another password" }, admin),
      disabled: () => gateway.send("PATCH", path, { disabled: true }, admin),
      revoked: () =>
        gateway.request(`${path}/tokens`, {
          method: "DELETE",
          headers: { authorization: `Bearer ${admin}` },
        }),
      removed: () =>
        gateway.request(path, { method: "DELETE", headers: { authorization: `Bearer ${admin}` } }),
    };
    for (const [label, end] of Object.entries(ends)) {
      await gateway.addUser("bob", "ReadOnly");
      const bob = await signedIn(t, url, "bob", "bob password");
      t.equal((await bob.get("/sessions")).status, 200, label);
      await end();
      t.equal((await bob.get("/sessions")).status, 303, label);
      await gateway.request(path, {
        method: "DELETE",
        headers: { authorization: `Bearer ${admin}` },
      });
    }
  },
);

t.test("an operator demoted in mid-session sees and ends no more than others", async (t) => {
  const { gateway, url } = await startConsole(t);
  await gateway.addUser("carol", "Owner", "*");
  const carol = await signedIn(t, url, "carol", "carol password");
  t.equal((await carol.get("/state")).status, 200);
  await gateway.edit((text) =>
    text.replace(/(username = "carol"\ndatabase = "\*"\nrole = )"Owner"/, '$1"ReadOnly"'),
  );
  await eventually(
    "the demotion is in force",
    async () => (await carol.get("/state")).status === 403,
  );
  const page = await carol.get("/sessions?user=admin");
  t.notMatch(page.text, /admin/);
  t.equal((await carol.post("/sessions/end-all", { user: "admin" })).status, 403);
});

t.test("passwords are guessed under the throttle of every login", async (t) => {
  const { gateway, url } = await startConsole(t, {
    auth: "max_failures_per_user_and_address = 3",
  });
  const client = new ConsoleClient(url);
  for (let at = 0; at < 3; at++) {
    const { status, text } = await client.signIn("admin", "wrong horse");
    t.equal(status, 401);
    t.match(text, /role="alert"[\s\S]*The username or the password is wrong/);
    t.notMatch(text, "wrong horse");
  }
  const answer = await client.signIn();
  t.equal(answer.status, 429);
  t.match(answer.headers["retry-after"], /^\d+$/);
  const login = { username: "admin", password: ADMIN_PASSWORD };
  t.equal((await gateway.send("POST", "/login", login)).status, 429, "at /login, too");
});

t.test("whoever signs in is led nowhere else", async (t) => {
  const { url } = await startConsole(t);
  const elsewhere = [
    "https://evil.example/",
    "//evil.example",
    "/\\evil.example",
    "\\\\evil.example",
    "javascript:alert(1)",
    "/\tevil",
    "",
  ];
  for (const next of elsewhere) {
    const client = new ConsoleClient(url);
    await client.get(`/sign-in?next=${encodeURIComponent(next)}`);
    const answer = await client.post("/sign-in", {
      username: "admin",
      password: ADMIN_PASSWORD,
      next,
    });
    t.equal(answer.headers.location, "/", next);
  }
  const client = new ConsoleClient(url);
  const { headers } = await client.get("/sessions?user=bob");
  t.equal(headers.location, "/sign-in?next=%2Fsessions%3Fuser%3Dbob");
});

t.test("what a stranger can write is only ever text", async (t) => {
  const { url } = await startConsole(t);
  const markup = `"><script>document.title=1</script><img src=x onerror=alert(1)>'`;
  const client = new ConsoleClient(url);
  await client.get("/sign-in");
  const again = await client.post("/sign-in", { username: markup, password: "x", next: markup });
  t.notMatch(again.text, "<script>");
  t.notMatch(again.text, "<img src=x");
  await client.get("/sign-in");
  const login = { username: "admin", password: ADMIN_PASSWORD, next: "/" };
  await client.post("/sign-in", login, { "user-agent": markup });
  const { text } = await client.get(`/sessions?user=${encodeURIComponent(markup)}`);
  t.match(text, "&quot;&gt;&lt;script&gt;");
  t.notMatch(text, "<script>");
  const { text: own } = await client.get("/sessions");
  t.match(own, "&lt;script&gt;document.title=1&lt;/script&gt;", "the browser's name");
  t.notMatch(own, "<script>");
  t.notMatch(own, "<img src=x");
});
