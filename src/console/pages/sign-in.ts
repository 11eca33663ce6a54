import { loginError, loginFields } from "../../pages/forms.ts";
import { html } from "../../pages/html.ts";
import { hidden, renderConsolePage } from "./frame.ts";

interface SignInView {
  readonly csrf: string;
  readonly username: string;
  /** Where to go on. */
  readonly next: string;
  readonly error: string | undefined;
  readonly gatewayUrl: string;
}

/** The sign-in page. */
export function signInPage({ csrf, username, next, error, gatewayUrl }: SignInView): string {
  return renderConsolePage(
    {
      title: error === undefined ? "Sign in" : "Error: sign in",
      content: html`<h1>Sign in</h1>
${loginError(error)}
<form method="post" action="/sign-in">
${hidden("csrf", csrf)}${hidden("next", next)}
${loginFields(username, error)}
<div class="actions"><button class="primary">Sign in</button></div>
</form>
<p class="quiet after">This is the console of the gateway at <bdi>${gatewayUrl}</bdi>. Whoever has a password there sees and ends their own sessions and apps here; administrators and owners also see who may do what.</p>
<details class="quiet"><summary>Cannot sign in?</summary>
<ul>
<li>The first start of a gateway makes the administrator <code>admin</code>, and prints its password or leaves it in the file <code>initial_admin_password</code>.</li>
<li>A password that is lost is set anew on the gateway's machine: <code>gatehouse user password &lt;name&gt;</code>.</li>
<li>Users of another authorization server have no password here, and so no console.</li>
</ul></details>`,
    },
    undefined,
  );
}
