/** Without a session: how to get one. */
import { html, useState } from "../core/elements.js";
import { login, Problem } from "../core/api.js";
import { readFigures } from "../data/figures.js";
import { Command } from "../parts/copy.js";
import { Refusal } from "../parts/notices.js";

/** A field for a token, and the command that makes a link. */
export function LoginView() {
  const [token, setToken] = useState("");
  const [problem, setProblem] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    try {
      await login(token.trim());
      setToken("");
      await readFigures();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      setProblem(error);
    }
  };
  return html`<main class="login" id="main" data-testid="view-login">
    <h1 tabindex="-1">Forebay</h1>
    <p>This page needs a session. On the server's machine, make a link that opens one:</p>
    <p><${Command} text="forebay token link" /></p>
    <form onSubmit=${submit}>
      <label>
        <span>Or give a token</span>
        <input type="password" name="token" autocomplete="current-password" spellcheck=${false}
          required placeholder="fb_…" data-testid="login-token" value=${token}
          onInput=${(event) => setToken(event.target.value)} />
      </label>
      <button type="submit" class="button primary" data-testid="login-submit">Open</button>
    </form>
    ${problem && html`<${Refusal} problem=${problem} onClose=${() => setProblem(null)} />`}
  </main>`;
}
