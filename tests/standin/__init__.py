"""A stand-in for the servers of language models: `python -m tests.standin --log FILE`.

One plain server on 127.0.0.1 speaks four dialects, told apart by the path that is asked:
Anthropic's Messages, OpenAI's Responses, OpenAI's Chat Completions and Gemini's generateContent,
each whole and as a stream. It answers by a script and costs nothing; it needs no key. Each
request is a line of the log, written when it comes, so that one can see what a program sent.
"""
