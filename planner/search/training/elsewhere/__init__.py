"""Families of a training job that another process looks at: `families` says which and takes them in, `sent` is how a
judged candidate travels. The search knows neither; who starts one hands it `families.elsewhere_of`.
"""
